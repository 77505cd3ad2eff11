import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ConnectException;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * The worker protocol of lockcheck (docs/protocol.md), so that an adapter is its
 * lock and nothing else: an implementation of Lock, and a call of serve.
 *
 * What a method throws decides what the history says. Refused is a proof that
 * nothing happened; every other exception leaves it open: the operation is
 * recorded as info, and the session is given up. The operations of one session
 * run in one thread, one after the other. Nothing that is printed reaches the
 * protocol.
 */
public final class Worker {
    private static final int PROTOCOL = 1;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** One worker's view of the locks. */
    public interface Lock {
        /** Takes the lock, waiting for up to the request's wait. */
        Grant acquire(Request r) throws Exception;

        void release(Object handle, Request r) throws Exception;

        /** The library says that it still holds, or Refused. */
        void check(Object handle, Request r) throws Exception;

        /** Proves that the lock is held by a write that a quorum agrees to, or Refused("not-held"). */
        Grant renew(Object handle, Request r) throws Exception;

        /** Ends the session. It may be called beside an operation that hangs. */
        void close() throws Exception;
    }

    /** Makes a lock for a session. It throws if the servers cannot be reached. */
    public interface Maker {
        Lock make(JsonNode settings, Runner runner) throws Exception;
    }

    /** One command to the lock; wait and timeout are in ms. */
    public static final class Request {
        public final String key;
        public final long grant, waitMillis, timeoutMillis;

        Request(JsonNode c) {
            key = c.path("key").asText();
            grant = c.path("grant").asLong();
            waitMillis = c.path("wait").asLong() / 1_000_000;
            timeoutMillis = c.path("timeout").asLong() / 1_000_000;
        }
    }

    /**
     * What an acquire or a renewal brought. The lock lives with a session. losses
     * is what Runner.losses() was when the library gave the lock: if the session is
     * lost between that and the answer, the answer is info.
     */
    public static final class Grant {
        public Object handle;
        public Long token;
        public long mark;
        public long losses = -1;
    }

    /** A proof that the operation did not happen: held, not-held, or a text. */
    public static final class Refused extends Exception {
        public Refused(String why) {
            super(why);
        }
    }

    /** The runner, as one session may speak to it. */
    public static final class Runner {
        private List<ObjectNode> early = new ArrayList<>(); // told before init was answered
        private boolean over;
        private long losses;

        /** How often the session was lost. */
        public long losses() {
            synchronized (OUT) {
                return losses;
            }
        }

        /** Tells suspended, lost or connected, of the whole session. */
        public void tell(String event) {
            tell(JSON.createObjectNode().put("event", event));
        }

        boolean tell(ObjectNode m) {
            synchronized (OUT) {
                if (over) return false;
                if (m.path("event").asText().equals("lost")) losses++;
                if (early != null) early.add(m);
                else put(m);
                return true;
            }
        }

        /** Puts a line into lockcheck's log of the run. */
        public void log(String text) {
            put(JSON.createObjectNode().put("log", text));
        }

        /** Has the runner stamp "now" and gives the mark's number; send the request only after that. */
        public long mark(Request r) throws Refused, InterruptedException {
            CountDownLatch stamped = new CountDownLatch(1);
            long number;
            synchronized (OUT) {
                number = ++marks;
                WAITING.put(number, stamped);
            }
            ObjectNode m = JSON.createObjectNode().put("event", "mark").put("mark", number).put("key", r.key).put("grant", r.grant);
            if (!tell(m) || !stamped.await(r.timeoutMillis, TimeUnit.MILLISECONDS))
                throw new Refused("the runner stamped no mark: nothing was sent");
            return number;
        }

        private void begun(ObjectNode answer) {
            synchronized (OUT) {
                put(answer);
                if (over || !answer.path("type").asText().equals("ok")) return;
                early.forEach(Worker::put);
                early = null;
            }
        }
    }

    /** Standard output, which nobody else may write to; it is also the lock of all that is told. */
    private static final PrintStream OUT = System.out;
    private static final Map<Long, CountDownLatch> WAITING = new HashMap<>();
    private static long marks;

    private static void put(ObjectNode m) {
        synchronized (OUT) {
            OUT.print(m.toString() + "\n");
            OUT.flush();
        }
    }

    /** A grant that the worker has. */
    private static final class Hold {
        final Object handle;
        final CountDownLatch over = new CountDownLatch(1);

        Hold(Object handle) {
            this.handle = handle;
        }
    }

    /** One life of a lock, from init to the next one. */
    private static final class Session {
        final Runner runner = new Runner();
        final ExecutorService thread = Executors.newSingleThreadExecutor(Worker::daemon);
        final Map<Long, Hold> holds = new HashMap<>();
        final JsonNode settings;
        volatile Lock lock;

        Session(JsonNode command, Maker maker) {
            settings = command.get("init");
            thread.execute(() -> {
                ObjectNode answer = JSON.createObjectNode().put("id", command.get("id").asLong()).put("type", "ok");
                try {
                    lock = maker.make(settings, runner);
                    answer.putArray("can").add("check").add("renew");
                } catch (Exception e) {
                    answer.put("type", "fail").put("error", e.toString());
                }
                runner.begun(answer);
            });
        }

        /** Silences the session at once and closes it when that is possible. */
        void abandon() {
            synchronized (OUT) {
                runner.over = true;
            }
            daemon(() -> {
                synchronized (holds) {
                    holds.values().forEach(h -> h.over.countDown());
                }
                try {
                    if (lock != null) lock.close();
                } catch (Exception e) { // nothing depends on it
                    System.err.println("closing an old session: " + e);
                }
            }).start();
        }

        void execute(JsonNode command) {
            thread.execute(() -> {
                ObjectNode answer = perform(command);
                synchronized (OUT) {
                    JsonNode losses = answer.remove("losses");
                    if (losses != null && losses.asLong() >= 0 && losses.asLong() != runner.losses)
                        answer = info("the session was lost before the answer could be given");
                    put(answer.put("id", command.get("id").asLong()));
                }
                if (command.get("op").asText().equals("acquire") && answer.get("type").asText().equals("ok")
                        && settings.path("renew").asBoolean())
                    renewInBackground(new Request(command));
            });
        }

        private ObjectNode perform(JsonNode command) {
            String op = command.get("op").asText();
            try {
                if (lock == null) throw new Refused("no session: init comes first");
                if (op.equals("read") || op.equals("write")) return store(settings.get("store").asText(), op, command);
                if (op.equals("close")) {
                    lock.close();
                    return JSON.createObjectNode().put("type", "ok");
                }
                return aboutAGrant(op, new Request(command));
            } catch (Refused e) {
                return JSON.createObjectNode().put("type", "fail").put("error", e.getMessage());
            } catch (Exception e) {
                return info(e.toString());
            }
        }

        private ObjectNode aboutAGrant(String op, Request r) throws Exception {
            if (op.equals("acquire")) {
                Grant g = lock.acquire(r);
                synchronized (holds) {
                    holds.put(r.grant, new Hold(g.handle));
                }
                return promise(g).put("losses", g.losses);
            }
            Hold hold;
            synchronized (holds) {
                hold = op.equals("release") ? holds.remove(r.grant) : holds.get(r.grant);
            }
            if (hold == null) throw new Refused("no such grant in this session");
            switch (op) {
                case "release":
                    synchronized (OUT) {
                        hold.over.countDown(); // from here on nothing is told of it
                    }
                    lock.release(hold.handle, r);
                    break;
                case "check":
                    lock.check(hold.handle, r);
                    break;
                case "renew":
                    return promise(lock.renew(hold.handle, r));
                default:
                    throw new Refused("cannot " + op);
            }
            return JSON.createObjectNode().put("type", "ok");
        }

        /** Proves the grant every third of the session's time-out, until its release begins. */
        private void renewInBackground(Request r) {
            Hold hold;
            synchronized (holds) {
                hold = holds.get(r.grant);
            }
            long every = settings.get("ttl").asLong() / 3;
            daemon(() -> {
                try {
                    while (!hold.over.await(every, TimeUnit.NANOSECONDS) && renewOnce(r, hold)) ;
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }).start();
        }

        private boolean renewOnce(Request r, Hold hold) throws InterruptedException {
            boolean goesOn = true;
            ObjectNode m = JSON.createObjectNode().put("key", r.key).put("grant", r.grant);
            try {
                long mark = runner.mark(r);
                lock.renew(hold.handle, r);
                m.put("event", "renewed").put("session", true).put("mark", mark);
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                goesOn = !"not-held".equals(e.getMessage());
                m.put("event", "renew-failed").put("error", String.valueOf(e.getMessage()));
            }
            synchronized (OUT) {
                if (hold.over.getCount() > 0) runner.tell(m);
            }
            return goesOn;
        }
    }

    private static ObjectNode promise(Grant g) {
        ObjectNode m = JSON.createObjectNode().put("type", "ok").put("session", true);
        if (g.token != null) m.put("token", g.token);
        if (g.mark != 0) m.put("mark", g.mark);
        return m;
    }

    private static ObjectNode info(String why) {
        return JSON.createObjectNode().put("type", "info").put("error", why);
    }

    /** Passes a read or a write on to the fenced store, by HTTP without redirects, proxies and second tries. */
    private static ObjectNode store(String url, String op, JsonNode command) {
        ObjectNode body = JSON.createObjectNode(), m = JSON.createObjectNode();
        for (String f : new String[] {"key", "grant", "token", "value"})
            if (command.has(f)) body.set(f, command.get(f));
        byte[] text = body.toString().getBytes(StandardCharsets.UTF_8);
        HttpURLConnection c = null;
        try {
            c = (HttpURLConnection) new URL(url + "/" + op).openConnection(Proxy.NO_PROXY);
            c.setInstanceFollowRedirects(false);
            c.setRequestMethod("POST");
            c.setConnectTimeout((int) (command.get("timeout").asLong() / 1_000_000));
            c.setReadTimeout((int) (command.get("timeout").asLong() / 1_000_000));
            c.setDoOutput(true);
            c.setFixedLengthStreamingMode(text.length); // what is streamed is not sent again
            c.getOutputStream().write(text);
            int status = c.getResponseCode();
            JsonNode reply = JSON.readTree(status < 400 ? c.getInputStream() : c.getErrorStream());
            if (status == 200) {
                m.put("type", "ok");
                if (reply.has("value")) m.set("value", reply.get("value"));
                return m;
            }
            return m.put("type", status == 409 || status == 400 ? "fail" : "info").put("error", reply.path("error").asText(String.valueOf(status)));
        } catch (ConnectException e) {
            return m.put("type", "fail").put("error", e.toString());
        } catch (IOException e) {
            if (c != null) c.disconnect();
            return info(e.toString());
        }
    }

    private static Thread daemon(Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        return t;
    }

    /** Speaks the protocol on standard input and output until the input ends. */
    public static void serve(Maker maker) throws IOException {
        System.setOut(System.err); // nobody else prints there
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Session session = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            String op = command.get("op").asText();
            if (op.equals("ack")) {
                CountDownLatch stamped;
                synchronized (OUT) {
                    stamped = WAITING.remove(command.get("mark").asLong());
                }
                if (stamped != null) stamped.countDown();
            } else if (op.equals("init")) {
                if (session != null) session.abandon();
                session = null;
                if (command.path("init").path("protocol").asInt() == PROTOCOL) session = new Session(command, maker);
                else refuse(command, "this worker speaks protocol " + PROTOCOL);
            } else if (session == null) {
                refuse(command, "no session: init comes first");
            } else {
                session.execute(command);
            }
        }
        Runtime.getRuntime().halt(0); // libraries have threads that would keep us
    }

    private static void refuse(JsonNode command, String why) {
        put(JSON.createObjectNode().put("id", command.get("id").asLong()).put("type", "fail").put("error", why));
    }
}
