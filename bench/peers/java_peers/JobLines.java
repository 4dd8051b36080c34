import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** What a peer is told, as lines NAME=VALUE on the standard input. */
final class JobLines {

    private JobLines() {}

    /** The job, up to an empty line; the end of the input behind it is the end of the caller. */
    static Map<String, String> read() throws IOException {
        Map<String, String> found = new HashMap<>();
        BufferedReader reader =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); !line.isEmpty(); line = reader.readLine()) {
            int at = line.indexOf('=');
            found.put(line.substring(0, at), line.substring(at + 1));
        }
        Thread watch = new Thread(() -> {
            try {
                reader.read();
            } catch (IOException cause) {
                // The same end by another way.
            }
            Runtime.getRuntime().halt(2);
        });
        watch.setDaemon(true);
        watch.start();
        return found;
    }
}
