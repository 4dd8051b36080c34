import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.ConnectorCallback;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.engine.format.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's embedded engine in front of a handler that counts what it gets and drops it.
 *
 * It writes nothing: whatever a real target costs comes on top. The settings of the engine come
 * from the caller, as lines "engine.NAME=VALUE" on the standard input; "format" is connect (the
 * records as they are, no serialization) or json; "expected" is how many there are.
 */
public final class DebeziumPeer {

    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(180);

    private final boolean load;
    private final long expected;
    private volatile long started;
    private volatile long count;
    private volatile long last;
    private volatile boolean stopped;
    private volatile String failure;

    private DebeziumPeer(boolean load, long expected) {
        this.load = load;
        this.expected = expected;
        this.started = this.last = System.nanoTime();
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.WARNING); // the binlog client's; all else uses SLF4J
        Map<String, String> job = JobLines.read();
        Properties settings = new Properties();
        job.forEach((name, value) -> {
            if (name.startsWith("engine.")) {
                settings.setProperty(name.substring("engine.".length()), value);
            }
        });
        DebeziumPeer peer = new DebeziumPeer(
                job.get("what").equals("load"), Long.parseLong(job.get("expected")));
        try (DebeziumEngine<?> engine =
                job.get("format").equals("json") ? peer.json(settings) : peer.connect(settings)) {
            ExecutorService executor = Executors.newSingleThreadExecutor();
            executor.execute(engine);
            peer.await();
            executor.shutdown();
        }
        if (peer.failure != null) {
            System.err.println(peer.failure);
            System.exit(1);
        }
        double seconds = (peer.last - peer.started) / 1e9;
        Files.writeString(
                Path.of(job.get("outcome")), "seconds=" + seconds + "\nrows=" + peer.count + "\n");
        System.exit(0); // threads of the drivers may still be there
    }

    /** The engine that hands over Kafka Connect's records as the connector made them. */
    private DebeziumEngine<RecordChangeEvent<SourceRecord>> connect(Properties settings) {
        return DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(settings)
                .using(whenStarted())
                .using(this::ended)
                .notifying((List<RecordChangeEvent<SourceRecord>> records,
                        RecordCommitter<RecordChangeEvent<SourceRecord>> committer) -> {
                    long rows = 0;
                    for (RecordChangeEvent<SourceRecord> event : records) {
                        rows += rowsOf(event.record());
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                    counted(rows);
                })
                .build();
    }

    /** The engine that hands over keys and values as JSON. */
    private DebeziumEngine<ChangeEvent<String, String>> json(Properties settings) {
        return DebeziumEngine.create(Json.class)
                .using(settings)
                .using(whenStarted())
                .using(this::ended)
                .notifying((List<ChangeEvent<String, String>> events,
                        RecordCommitter<ChangeEvent<String, String>> committer) -> {
                    long rows = 0;
                    for (ChangeEvent<String, String> event : events) {
                        String value = event.value();
                        boolean counts = value != null
                                && value.contains("\"op\":\"")
                                && value.contains("\"op\":\"r\"") == load;
                        rows += counts ? 1 : 0;
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                    counted(rows);
                })
                .build();
    }

    /** The first query is still to come then; what is before it is the loading of classes. */
    private ConnectorCallback whenStarted() {
        return new ConnectorCallback() {
            @Override
            public void connectorStarted() {
                started = last = System.nanoTime();
            }
        };
    }

    private void ended(boolean success, String message, Throwable cause) {
        if (!success) {
            failure = message + (cause == null ? "" : ": " + cause);
        }
        stopped = true;
    }

    /** 1 for a row of a load or a change of a follow; 0 for others, and for changes of schemas. */
    private long rowsOf(SourceRecord record) {
        if (!(record.value() instanceof Struct) || record.valueSchema().field("op") == null) {
            return 0;
        }
        String operation = ((Struct) record.value()).getString("op");
        return operation != null && operation.equals("r") == load ? 1 : 0;
    }

    private void counted(long rows) {
        if (rows > 0) {
            last = System.nanoTime();
            count += rows; // the engine calls its handler from one thread at a time
        }
    }

    /** Until all has come; the engine's offsets stand behind it then, and closing stores them. */
    private void await() throws InterruptedException {
        while (!stopped && count < expected) {
            if (System.nanoTime() - last > PATIENCE_NANOS) {
                failure = "only " + count + " of " + expected + " came, then nothing any more";
                return;
            }
            Thread.sleep(5);
        }
    }
}
