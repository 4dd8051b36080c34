import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.paimon.Snapshot;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.utils.SnapshotManager;

/**
 * Flink CDC's connector for MySQL into a Paimon table, in a Flink cluster inside this JVM.
 *
 * The statements and settings come from the caller, as lines NAME=VALUE on the standard input:
 * "flink.*" is Flink's configuration, "sql.*" the statements in the order of their names, the last
 * of them the INSERT. A load ends with the commit that holds all rows; a follow with the first
 * commit whose count and sums are the source's. How long it took is what Paimon wrote down as that
 * commit's moment, so looking at it later costs the job nothing.
 */
public final class FlinkPeer {

    private static final long PATIENCE_MILLIS = TimeUnit.MINUTES.toMillis(20);

    private final Map<String, String> job;
    private FileStoreTable table;
    private long started;

    private FlinkPeer(Map<String, String> job) {
        this.job = job;
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.WARNING); // the binlog client's; all else uses SLF4J
        FlinkPeer peer = new FlinkPeer(JobLines.read());
        String outcome = peer.run();
        Files.writeString(Path.of(peer.job.get("outcome")), outcome);
        System.exit(0); // the cluster's threads may still be there
    }

    private String run() throws Exception {
        boolean load = job.get("what").equals("load");
        JobClient client = submit();
        awaitRunning(client);
        table = openTable();
        Snapshot last = load ? awaitRows(client) : awaitSums(client);
        double seconds = (last.timeMillis() - started) / 1e3;
        String savepoint = "";
        if (load) {
            awaitLog(client);
            savepoint =
                    client.stopWithSavepoint(false, job.get("savepoints"), SavepointFormatType.CANONICAL)
                            .get(5, TimeUnit.MINUTES);
        } else {
            client.cancel().get(1, TimeUnit.MINUTES);
        }
        Sums sums = Sums.of(table, null);
        return "seconds=" + seconds + "\nsavepoint=" + savepoint + "\ncount=" + sums.count + "\nids="
                + sums.ids + "\namounts=" + sums.amounts + "\n";
    }

    private JobClient submit() {
        Configuration settings = new Configuration();
        TreeMap<String, String> statements = new TreeMap<>();
        job.forEach((name, value) -> {
            if (name.startsWith("flink.")) {
                settings.setString(name.substring("flink.".length()), value);
            } else if (name.startsWith("sql.")) {
                statements.put(name, value);
            }
        });
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        JobClient client = null;
        for (String statement : statements.values()) {
            client = tables.executeSql(statement).getJobClient().orElse(null);
        }
        return client;
    }

    /** From here on the source is asked; before it the cluster starts and the SQL is planned. */
    private void awaitRunning(JobClient client) throws Exception {
        while (client.getJobStatus().get() != JobStatus.RUNNING) {
            failIfEnded(client);
            Thread.sleep(5);
        }
        started = System.currentTimeMillis();
    }

    private FileStoreTable openTable() throws Exception {
        Options options = new Options();
        options.set("warehouse", job.get("warehouse"));
        Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options));
        return (FileStoreTable) catalog.getTable(Identifier.create("default", job.get("table")));
    }

    /** The commit by which the table has all rows; nothing changes during a load, so they count. */
    private Snapshot awaitRows(JobClient client) throws Exception {
        long rows = Long.parseLong(job.get("rows"));
        SnapshotManager snapshots = table.snapshotManager();
        while (true) {
            Snapshot latest = snapshots.latestSnapshot();
            if (latest != null && latest.totalRecordCount() >= rows) {
                for (long id = snapshots.earliestSnapshotId(); ; id++) {
                    Snapshot snapshot = snapshots.snapshot(id);
                    if (snapshot.totalRecordCount() >= rows) {
                        return snapshot;
                    }
                }
            }
            pause(client);
        }
    }

    /** The first commit with the source's count and sums; looked at once the log is all sent. */
    private Snapshot awaitSums(JobClient client) throws Exception {
        Sums expected = source();
        SnapshotManager snapshots = table.snapshotManager();
        Long before = snapshots.latestSnapshotId();
        long seen = before == null ? 0 : before;
        while (true) {
            boolean sent = log(" AND state LIKE '%sent all%'") > 0;
            pause(client);
            if (!sent) {
                continue;
            }
            for (Long latest = snapshots.latestSnapshotId(); latest != null && seen < latest; ) {
                Snapshot snapshot = snapshots.snapshot(++seen);
                if (snapshot.commitKind() == Snapshot.CommitKind.APPEND
                        && Sums.of(table, snapshot.id()).equals(expected)) {
                    return snapshot;
                }
            }
        }
    }

    /** With the snapshot behind it the job begins to read the log one checkpoint later. */
    private void awaitLog(JobClient client) throws Exception {
        while (log("") == 0) {
            pause(client);
        }
    }

    private void pause(JobClient client) throws Exception {
        failIfEnded(client);
        if (System.currentTimeMillis() - started > PATIENCE_MILLIS) {
            throw new IllegalStateException("not done after " + PATIENCE_MILLIS / 60_000 + " min");
        }
        Thread.sleep(100);
    }

    private static void failIfEnded(JobClient client) throws Exception {
        JobStatus status = client.getJobStatus().get();
        if (status.isTerminalState()) {
            client.getJobExecutionResult().get(); // throws what the job failed with
            throw new IllegalStateException("the job ended: " + status);
        }
    }

    private Sums source() throws SQLException {
        try (Connection connection = connect();
                Statement statement = connection.createStatement();
                ResultSet found =
                        statement.executeQuery(
                                "SELECT COUNT(*), SUM(id), SUM(amount) FROM " + job.get("table"))) {
            found.next();
            return new Sums(found.getLong(1), found.getLong(2), found.getLong(3));
        }
    }

    /** How many of this account's connections read the log. */
    private int log(String and) throws SQLException {
        try (Connection connection = connect();
                Statement statement = connection.createStatement();
                ResultSet found =
                        statement.executeQuery(
                                "SELECT COUNT(*) FROM information_schema.processlist"
                                        + " WHERE command = 'Binlog Dump' AND user = '"
                                        + job.get("user") + "'" + and)) {
            found.next();
            return found.getInt(1);
        }
    }

    private Connection connect() throws SQLException {
        return DriverManager.getConnection(job.get("url"), job.get("user"), job.get("password"));
    }

    /** What is compared of a table. */
    private static final class Sums {
        private long count;
        private long ids;
        private long amounts;

        private Sums(long count, long ids, long amounts) {
            this.count = count;
            this.ids = ids;
            this.amounts = amounts;
        }

        private static Sums of(FileStoreTable table, Long snapshot) throws Exception {
            Table at = snapshot == null
                    ? table
                    : table.copy(Map.of("scan.snapshot-id", snapshot.toString()));
            ReadBuilder builder = at.newReadBuilder().withProjection(new int[] {0, 3});
            Sums sums = new Sums(0, 0, 0);
            try (RecordReader<InternalRow> reader =
                    builder.newRead().createReader(builder.newScan().plan())) {
                reader.forEachRemaining(row -> {
                    sums.count++;
                    sums.ids += row.getLong(0);
                    sums.amounts += row.isNullAt(1) ? 0 : row.getInt(1);
                });
            }
            return sums;
        }

        private boolean equals(Sums other) {
            return count == other.count && ids == other.ids && amounts == other.amounts;
        }
    }
}
