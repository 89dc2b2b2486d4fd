import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;

import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;

import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Shows the token FIRST_TOKEN until it is over, then SECOND_TOKEN. Java asks again every few seconds. */
public final class Tokens implements AuthenticateCallbackHandler {
    static volatile boolean isFirstOver;
    /** The second token was asked for twice, so the client has it for sure. */
    static final CountDownLatch renewed = new CountDownLatch(2);
    private static final long LIFETIME_MS = 2_000;

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> jaas) { }

    @Override
    public void close() { }

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerTokenCallback wanted) {
                String name = isFirstOver ? "SECOND_TOKEN" : "FIRST_TOKEN";
                wanted.token(new Shown(System.getenv(name), System.currentTimeMillis()));
                if (isFirstOver) {
                    renewed.countDown();
                }
            }
        }
    }

    private record Shown(String value, long startMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return startMs + LIFETIME_MS;
        }

        @Override
        public Long startTimeMs() {
            return startMs;
        }

        @Override
        public String principalName() {
            return "alice";
        }
    }
}
