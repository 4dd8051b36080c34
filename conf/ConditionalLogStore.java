package ratchet;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Spark's commits into S3 are put "unless there is one". Delta's own store looks first and puts
 * then: one that stands still between the two replaces a commit of somebody else.
 *
 * Compiled at the start of a session, by Janino of Spark's jars (jobs/engine/logstore.py): plain
 * Java 8 without lambdas.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {

    // Of Hadoop 3.4.2 and later: S3's If-None-Match. A file system that has none refuses it.
    private static final String UNLESS_THERE = "fs.option.create.conditional.overwrite";

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    /**
     * Write a file of the log.
     *
     * @throws FileAlreadyExistsException there is one with other contents, as Delta expects it
     * @throws IOException it is not written, or nobody knows
     */
    public void write(
            Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        byte[] ours = lines(actions);
        FileSystem files = path.getFileSystem(configuration);
        try {
            put(files, path, ours);
        } catch (IOException error) {
            if (!files.exists(path)) {
                throw error;
            }
            // Where an answer was lost the client puts again, and meets its own file.
            if (!Arrays.equals(ours, contents(files, path))) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    private static byte[] lines(Iterator<String> actions) throws IOException {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            text.write(((String) actions.next()).getBytes(StandardCharsets.UTF_8));
            text.write('\n');
        }
        return text.toByteArray();
    }

    // The object is there when the stream has been closed, and not before.
    private static void put(FileSystem files, Path path, byte[] contents) throws IOException {
        FSDataOutputStream stream =
                (FSDataOutputStream) files.createFile(path).must(UNLESS_THERE, true).build();
        stream.write(contents);
        stream.close();
    }

    private static byte[] contents(FileSystem files, Path path) throws IOException {
        InputStream stream = files.open(path);
        try {
            return stream.readAllBytes();
        } finally {
            stream.close();
        }
    }
}
