import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** Curator's InterProcessMutex. */
public final class CuratorMutex {
    public static void main(String[] args) throws Exception {
        Worker.serve((settings, runner) -> new CuratorLock(settings, runner, InterProcessMutex::new, ""));
    }
}
