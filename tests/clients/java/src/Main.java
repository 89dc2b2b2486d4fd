import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Tries the features named on the command line and prints one line of JSON for each:
 * {@code Main <version> <bootstrap> <topic prefix> <feature>=<timeout in ms> ...}.
 */
public final class Main {
    public static void main(String[] arguments) {
        System.out.println("{\"client\": \"kafka-clients\", \"version\": " + quoted(arguments[0]) + "}");
        for (String argument : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] parts = argument.split("=");
            attempt(parts[0], new Clients(arguments[1], arguments[2], Long.parseLong(parts[1])));
        }
        System.out.flush();
        // A feature that never ended still has its thread.
        Runtime.getRuntime().halt(0);
    }

    private static void attempt(String name, Clients clients) {
        Map<String, Feature> features = new Features(clients).all();
        if (Era.ABSENT.contains(name) || !features.containsKey(name)) {
            print(name, "absent", "");
            return;
        }
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            thread.submit(() -> {
                features.get(name).run();
                return null;
            }).get(clients.timeoutMs + 1_000, TimeUnit.MILLISECONDS);
            print(name, "ok", "");
        } catch (ExecutionException failure) {
            print(name, "failed", told(failure.getCause()));
        } catch (TimeoutException | InterruptedException late) {
            print(name, "failed", "no end after " + clients.timeoutMs + " ms");
        } finally {
            thread.shutdownNow();
        }
    }

    /** An error with its causes: clients wrap what a broker said. */
    private static String told(Throwable error) {
        return error.getCause() == null ? error.toString() : error + " <- " + told(error.getCause());
    }

    private static void print(String feature, String result, String note) {
        System.out.println("{\"feature\": " + quoted(feature) + ", \"result\": " + quoted(result)
                + ", \"note\": " + quoted(note) + "}");
        System.out.flush();
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(' ');
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    /** Does one thing and checks what came of it. */
    interface Feature {
        void run() throws Exception;
    }

    private Main() {
    }
}
