import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;

/** Curator's InterProcessSemaphoreMutex. */
public final class CuratorSemaphore {
    public static void main(String[] args) throws Exception {
        Worker.serve((settings, runner) -> new CuratorLock(settings, runner, InterProcessSemaphoreMutex::new, "/leases"));
    }
}
