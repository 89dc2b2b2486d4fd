import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reactions of Java's clients to faults that the test asks for over HTTP (docs/TESTING.md). */
public final class Controlled {
    private interface Work { void run(String topic) throws Exception; }

    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static String bootstrap;
    private static String prefix;

    public static void main(String[] arguments) {
        bootstrap = arguments[1];
        prefix = arguments[2];
        System.out.printf("{\"client\":\"kafka-clients\",\"version\":\"%s\"}%n", arguments[0]);
        for (int at = 3; at < arguments.length; at++) {
            String feature = arguments[at].substring(0, arguments[at].indexOf('='));
            String result = "ok";
            String note = "";
            try {
                run(feature);
            } catch (Throwable error) {
                result = "failed";
                note = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            }
            System.out.printf("{\"feature\":\"%s\",\"result\":\"%s\",\"note\":\"%s\"}%n", feature, result, note);
        }
    }

    private static void run(String feature) throws Exception {
        switch (feature) {
            case "lost-response" -> onceStored("lost", "\"drop\":\"after\",\"times\":1", 1);
            case "half-response" -> onceStored("half", "\"drop\":\"during\",\"times\":1", 1);
            case "moved-leader" -> onceStored("moved", "\"error\":\"NOT_LEADER_OR_FOLLOWER\",\"times\":2", 2);
            case "slow-broker" -> slowBroker();
            case "zombie" -> zombie();
            case "fenced-member" -> memberLoses("fenced", topic -> ask("DELETE", "/groups/" + topic + "/members", ""));
            case "clock-jump" -> memberLoses("jump", topic -> ask("POST", "/time", "{\"advance\":\"3m\"}"));
            case "restart" -> restart();
            case "poison-record" -> poisonRecord();
            case "full-disk" -> fullDisk();
            case "unclean-leader" -> uncleanLeader();
            case "expired-token" -> expiredToken();
            default -> throw new IllegalArgumentException(feature);
        }
    }

    // --- the control interface ---

    private static String ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("CONTROL_URL") + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body)).timeout(PATIENCE).build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) {
            throw new IllegalStateException(method + " " + path + ": " + answer.body());
        }
        return answer.body();
    }

    private static int number(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": *(\\d+)").matcher(json);
        if (!found.find()) {
            throw new IllegalStateException("no " + name + " in " + json);
        }
        return Integer.parseInt(found.group(1));
    }

    private static String topic(String name) throws Exception {
        ask("PUT", "/topics/" + prefix + "-" + name, "{\"partitions\":1}");
        return prefix + "-" + name;
    }

    /** Runs the work under a rule for Produce; returns the rule's hits. */
    private static int under(String fault, String topic, Work work) throws Exception {
        String made = ask("POST", "/faults", "{\"api\":\"Produce\",\"topic\":\"" + topic + "\"," + fault + "}");
        String path = "/faults/" + number(made, "number");
        try {
            work.run(topic);
            return number(ask("GET", path, ""), "hits");
        } finally {
            ask("DELETE", path, "");
        }
    }

    private static long stored(String topic, String query) throws Exception {
        String records = ask("GET", "/topics/" + topic + "/records" + query, "");
        return Pattern.compile("\"offset\"").matcher(records).results().count();
    }

    private static void expect(String what, Object found, Object wanted) {
        if (!found.equals(wanted)) {
            throw new AssertionError(what + ": " + found + ", not " + wanted);
        }
    }

    // --- the reactions ---

    private static KafkaProducer<String, String> producer(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < more.length; at += 2) {
            settings.put(more[at], more[at + 1]);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static void publish(String topic, String... more) throws Exception {
        try (KafkaProducer<String, String> producer = producer(more)) {
            producer.send(new ProducerRecord<>(topic, "one")).get();
        }
    }

    private static void onceStored(String name, String fault, int hits) throws Exception {
        String topic = topic(name);
        expect("hits", under(fault, topic, Controlled::publish), hits);
        expect("records", stored(topic, ""), 1L);
    }

    private static void slowBroker() throws Exception {
        under("\"delay\":\"60s\"", topic("slow"), topic -> {
            try {
                publish(topic, "delivery.timeout.ms", "1000", "request.timeout.ms", "900", "linger.ms", "0");
            } catch (ExecutionException error) {
                expect("error", error.getCause() instanceof TimeoutException, true);
                return;
            }
            throw new AssertionError("the slow broker answered in time");
        });
    }

    private static void zombie() throws Exception {
        String topic = topic("zombie");
        try (KafkaProducer<String, String> producer = producer("transactional.id", topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "zombie")).get();
            ask("POST", "/producers/" + topic + "/fence", "");
            try {
                producer.commitTransaction();
                throw new AssertionError("a zombie has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException error) {
                expect("committed records", stored(topic, "?committed=true"), 0L);
            }
        }
    }

    private static void restartBroker() throws Exception {
        ask("POST", "/brokers/" + number(ask("GET", "/brokers", ""), "id") + "/restart", "");
    }

    private static void restart() throws Exception {
        String topic = topic("restart");
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>(topic, "one")).get();
            restartBroker();
            producer.send(new ProducerRecord<>(topic, "two")).get();
        }
        expect("records", stored(topic, ""), 2L);
    }

    private static void poisonRecord() throws Exception {
        int hits = under("\"error\":\"INVALID_RECORD\"", topic("poison"), topic -> {
            try {
                publish(topic);
            } catch (ExecutionException error) {
                expect("error", error.getCause() instanceof InvalidRecordException, true);
                return;
            }
            throw new AssertionError("the poison record was stored");
        });
        expect("hits", hits, 1); // the error is final
    }

    private static void fullDisk() throws Exception {
        String topic = topic("full");
        ask("PUT", "/disk", "{\"state\":\"ENOSPC\",\"under\":\"" + topic + "\"}");
        try {
            publish(topic, "delivery.timeout.ms", "3000", "request.timeout.ms", "900", "linger.ms", "0");
            throw new AssertionError("a record was stored on a full disk");
        } catch (ExecutionException error) {
            expect("error", error.getCause() instanceof TimeoutException, true);
        } finally {
            restartBroker(); // with a disk that has room
        }
        publish(topic);
    }

    /** The first token ends when the time jumps. The client learns that from its broker, and shows the second. */
    private static void expiredToken() throws Exception {
        String topic = topic("token");
        try (KafkaProducer<String, String> producer = producer(
                "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER",
                "sasl.jaas.config", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class", Tokens.class.getName(),
                "sasl.login.refresh.min.period.seconds", "0", "sasl.login.refresh.buffer.seconds", "0")) {
            producer.send(new ProducerRecord<>(topic, "one")).get();
            ask("POST", "/time", "{\"advance\":\"1h\"}");
            Tokens.isFirstOver = true;
            // Java renews a login by its own clock. A connection with the old token would be refused for good.
            expect("renewed", Tokens.renewed.await(PATIENCE.toSeconds(), TimeUnit.SECONDS), true);
            producer.send(new ProducerRecord<>(topic, "two")).get();
        }
        expect("records", stored(topic, ""), 2L);
    }

    /** A cluster of two: the follower misses a record, and then leads alone. */
    private static void uncleanLeader() throws Exception {
        String topic = topic("unclean");
        String partition = "/topics/" + topic + "/partitions/0";
        int leader = number(ask("GET", partition, ""), "leader");
        int follower = 3 - leader;
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>(topic, "one")).get();
            ask("POST", "/brokers/" + follower + "/kill", "");
            while (ask("GET", partition, "").replaceAll(".*\\[(.*)\\].*", "$1").contains(",")) {
                Thread.sleep(20);
            }
            producer.send(new ProducerRecord<>(topic, "lost")).get();
            ask("POST", "/brokers/" + leader + "/kill", "");
            ask("POST", "/brokers/" + follower + "/restart", "");
            ask("POST", partition + "/wait?leader_is_not=" + leader, "");
            expect("records", stored(topic, ""), 1L);
        }
        try (KafkaProducer<String, String> another = producer()) { // the first has numbers of a lost record
            another.send(new ProducerRecord<>(topic, "two")).get();
        }
        expect("records", stored(topic, ""), 2L);
        ask("POST", "/brokers/" + leader + "/restart", "");
    }

    /** A member reads a record, loses its place before the commit, and reads the record again. */
    private static void memberLoses(String name, Work lose) throws Exception {
        String topic = topic(name);
        publish(topic);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("heartbeat.interval.ms", "100");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            readOne(consumer);
            lose.run(topic);
            try {
                consumer.commitSync();
                throw new AssertionError("a fenced member has committed");
            } catch (CommitFailedException expected) {
                readOne(consumer); // the same record, after it has joined again
            }
        }
    }

    private static void readOne(KafkaConsumer<String, String> consumer) {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < end) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) {
                expect("records", records.count(), 1);
                return;
            }
        }
        throw new AssertionError("no record came");
    }
}
