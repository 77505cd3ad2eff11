import com.fasterxml.jackson.databind.JsonNode;

import org.apache.curator.RetryPolicy;
import org.apache.curator.drivers.AdvancedTracerDriver;
import org.apache.curator.drivers.EventTrace;
import org.apache.curator.drivers.OperationTrace;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.KeeperException.NoNodeException;
import org.apache.zookeeper.data.Stat;

import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;

/**
 * A lock recipe of Curator (https://curator.apache.org/docs/recipes-shared-reentrant-lock/).
 *
 * Curator sends requests again by itself, as its retry policy says, and its
 * release takes "no such node" for success: its tracer is asked whether a delete was
 * answered with ok, which is all that it knows. What else a release may have come
 * to is therefore info. What its listener says of the session is passed on; Curator calls it
 * from a thread of its own, which may be late. Curator offers no token; the czxid
 * of the contender's own node is taken for one. A grant is proved, and later
 * renewed, by a write to that node, which needs a quorum and Curator itself does
 * not do.
 */
final class CuratorLock implements Worker.Lock {
    /** Makes the recipe on a path. */
    interface Recipe {
        InterProcessLock on(CuratorFramework client, String path);
    }

    private static final byte[] PROOF = {};
    private final CuratorFramework client;
    private final Worker.Runner runner;
    private final Recipe recipe;
    private final String nodes; // below the lock's path, where the contenders' nodes are
    private volatile boolean deleted; // since the latest release began

    CuratorLock(JsonNode settings, Worker.Runner runner, Recipe recipe, String nodes) throws Exception {
        this.runner = runner;
        this.recipe = recipe;
        this.nodes = nodes;
        StringJoiner servers = new StringJoiner(",");
        settings.get("endpoints").forEach(e -> servers.add(e.asText()));
        int ttl = (int) (settings.get("ttl").asLong() / 1_000_000);
        RetryPolicy policy = new ExponentialBackoffRetry(100, 3);
        client = CuratorFrameworkFactory.newClient(servers.toString(), ttl, Math.max(ttl, 1000), policy);
        client.getConnectionStateListenable().addListener((c, state) -> listen(state));
        client.getZookeeperClient().setTracerDriver(new Deletes());
        client.start();
        if (!client.blockUntilConnected(25, TimeUnit.SECONDS)) {
            client.close();
            throw new Exception("no connection to " + servers);
        }
    }

    private void listen(ConnectionState state) {
        switch (state) {
            case SUSPENDED:
                runner.tell("suspended");
                break;
            case LOST:
                runner.tell("lost");
                break;
            case CONNECTED:
            case RECONNECTED:
                runner.tell("connected");
                break;
            default:
        }
    }

    /** Notes the deletes that succeeded; Curator traces no other. */
    private final class Deletes extends AdvancedTracerDriver {
        @Override
        public void addTrace(OperationTrace t) {
            if (t.getName().equals("DeleteBuilderImpl-Foreground") && t.getReturnCode() == Code.OK.intValue()) deleted = true;
        }

        @Override
        public void addEvent(EventTrace t) {}
    }

    /** A lock that was granted, and the node that it stands on. */
    private static final class Held {
        InterProcessLock lock;
        String node;
    }

    @Override
    public Worker.Grant acquire(Worker.Request r) throws Exception {
        Held held = new Held();
        String path = "/curator/" + r.key.replace("/", "%2F");
        held.lock = recipe.on(client, path);
        boolean got = held.lock.acquire(r.waitMillis, TimeUnit.MILLISECONDS);
        Worker.Grant g = new Worker.Grant();
        g.losses = runner.losses();
        held.node = ownNode(path + nodes);
        if (!got) {
            if (held.node != null) throw new Exception("a node may have stayed in the queue: " + held.node);
            throw new Worker.Refused("held");
        }
        g.handle = held;
        long mark = runner.mark(r);
        try {
            g.token = renew(held, r).token;
            g.mark = mark;
        } catch (Worker.Refused e) { // Curator says that it has the lock, and its node is gone
            runner.log("Curator granted a lock whose node is gone");
        }
        return g;
    }

    /** The node of this session below dir, or null. */
    private String ownNode(String dir) throws Exception {
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        try {
            for (String name : client.getChildren().forPath(dir)) {
                Stat s = client.checkExists().forPath(dir + "/" + name);
                if (s != null && s.getEphemeralOwner() == session) return dir + "/" + name;
            }
        } catch (NoNodeException e) {
            return null;
        }
        return null;
    }

    @Override
    public Worker.Grant renew(Object handle, Worker.Request r) throws Exception {
        Held held = (Held) handle;
        if (held.node == null) throw new Worker.Refused("not-held");
        Worker.Grant g = new Worker.Grant();
        try {
            g.token = client.setData().forPath(held.node, PROOF).getCzxid();
        } catch (NoNodeException e) {
            throw new Worker.Refused("not-held");
        }
        return g;
    }

    @Override
    public void check(Object handle, Worker.Request r) throws Exception {
        if (!((Held) handle).lock.isAcquiredInThisProcess()) throw new Worker.Refused("Curator says that it does not hold the lock");
    }

    @Override
    public void release(Object handle, Worker.Request r) throws Exception {
        deleted = false;
        ((Held) handle).lock.release();
        if (!deleted) throw new Exception("Curator says that it released the lock, but no delete succeeded");
    }

    @Override
    public void close() throws Exception {
        boolean connected = client.getZookeeperClient().isConnected();
        client.close();
        if (!connected) throw new Exception("not connected; the session ends with its time-out");
    }
}
