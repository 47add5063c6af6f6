import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/** Several of Kafka's tools, one behind the other: class and arguments, then a semicolon. Tells each one's exit code. */
public class ToolCalls {
    private static final class Ended extends RuntimeException {
        private final int status;

        Ended(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        List<String> words = new ArrayList<>();
        for (String word : arguments) {
            if (!word.equals(";")) {
                words.add(word);
                continue;
            }
            System.out.println("exit=" + run(words));
            words.clear();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(List<String> words) throws Exception {
        String[] given = words.subList(1, words.size()).toArray(new String[0]);
        try {
            Class.forName(words.get(0)).getMethod("main", String[].class).invoke(null, (Object) given);
            return 0;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Ended ended) {
                return ended.status;
            }
            throw error;
        }
    }
}
