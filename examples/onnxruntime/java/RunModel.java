import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/**
 * Runs a compiled model with onnxruntime for Java and the library of unpool; no Python is needed.
 *
 * <pre>java -cp onnxruntime.jar RunModel.java LIBRARY MODEL SHAPE INPUT OUTPUT</pre>
 *
 * INPUT has the float32 of an image in row-major order, SHAPE is its shape, such as 1,3,480,640, and OUTPUT gets the
 * float32 of the first output. The only lines that concern unpool are the two marked with it.
 */
public final class RunModel {
    public static void main(String[] arguments) throws IOException, OrtException {
        long[] shape = Arrays.stream(arguments[2].split(",")).mapToLong(Long::parseLong).toArray();
        byte[] content = Files.readAllBytes(Path.of(arguments[3]));
        FloatBuffer values = ByteBuffer.allocateDirect(content.length)
                .order(ByteOrder.nativeOrder()).put(content).flip().order(ByteOrder.nativeOrder()).asFloatBuffer();
        OrtEnvironment environment = OrtEnvironment.getEnvironment();
        try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
            options.setIntraOpNumThreads(2);
            options.addConfigEntry("unpool.trust_plans", "1"); // unpool: the file is yours
            options.registerCustomOpLibrary(arguments[0]); // unpool: the operators
            try (OrtSession session = environment.createSession(arguments[1], options);
                    OnnxTensor input = OnnxTensor.createTensor(environment, values, shape);
                    OrtSession.Result outputs = session.run(Map.of(session.getInputNames().iterator().next(), input))) {
                FloatBuffer output = ((OnnxTensor) outputs.get(0)).getFloatBuffer();
                ByteBuffer bytes = ByteBuffer.allocate(output.remaining() * Float.BYTES).order(ByteOrder.nativeOrder());
                bytes.asFloatBuffer().put(output);
                Files.write(Path.of(arguments[4]), bytes.array());
            }
        }
    }
}
