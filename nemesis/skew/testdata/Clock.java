import java.io.*;
import java.time.*;

/** Answers each line of input with the time of day and the monotonic clock, in ns. */
public class Clock {
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            Instant i = Instant.now();
            System.out.println(i.getEpochSecond() * 1_000_000_000L + i.getNano()
                    + " " + System.currentTimeMillis() * 1_000_000L + " " + System.nanoTime());
            System.out.println(".");
            System.out.flush();
        }
    }
}
