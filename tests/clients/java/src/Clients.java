import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Producers, consumers and admin clients of one feature, and what all features do with them. */
final class Clients {
    final String bootstrap;
    final long timeoutMs;
    private final String prefix;
    private final long deadlineMs;

    Clients(String bootstrap, String prefix, long timeoutMs) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.timeoutMs = timeoutMs;
        this.deadlineMs = System.currentTimeMillis() + timeoutMs;
    }

    String topic(String name) {
        return prefix + "-" + name;
    }

    private Properties properties(String... pairs) {
        Properties properties = new Properties();
        String file = System.getenv("CLIENT_PROPERTIES");
        if (file != null) {
            try (InputStream text = new FileInputStream(file)) {
                properties.load(text);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        properties.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    AdminClient admin() {
        return AdminClient.create(properties());
    }

    KafkaProducer<String, String> producer(String... pairs) {
        Properties properties = properties(pairs);
        properties.put("max.block.ms", String.valueOf(timeoutMs));
        properties.putIfAbsent("acks", "all");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(properties);
    }

    KafkaConsumer<String, String> consumer(String... pairs) {
        Properties properties = properties(pairs);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(properties);
    }

    /** A new topic, awaited until every partition is known. */
    String newTopic(String name, int partitions, Map<String, String> configs) throws Exception {
        try (AdminClient admin = admin()) {
            NewTopic wanted = new NewTopic(topic(name), partitions, (short) 1).configs(configs);
            admin.createTopics(Collections.singleton(wanted)).all().get();
            until("the topic was described", () -> Era.describe(admin, topic(name)).partitions().size() == partitions);
        }
        return topic(name);
    }

    String newTopic(String name) throws Exception {
        return newTopic(name, 1, Collections.emptyMap());
    }

    void send(List<ProducerRecord<String, String>> records, String... pairs) throws Exception {
        try (KafkaProducer<String, String> producer = producer(pairs)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<String, String> record : records) {
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
    }

    static List<ProducerRecord<String, String>> records(String topic, List<String> values) {
        List<ProducerRecord<String, String>> made = new ArrayList<>();
        for (String value : values) {
            made.add(new ProducerRecord<>(topic, 0, null, value));
        }
        return made;
    }

    List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        while (records.size() < count) {
            if (System.currentTimeMillis() > deadlineMs) {
                throw new IllegalStateException("silence after " + records.size() + " of " + count + " records");
            }
            Era.poll(consumer, 200).forEach(records::add);
        }
        return records;
    }

    List<ConsumerRecord<String, String>> readPartition(String topic, int count, String... pairs) {
        try (KafkaConsumer<String, String> consumer = consumer(pairs)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            return read(consumer, count);
        }
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        List<String> values = new ArrayList<>();
        for (ConsumerRecord<String, String> record : records) {
            values.add(record.value());
        }
        return values;
    }

    static List<String> texts(String stem, int count) {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            texts.add(String.join(" ", Collections.nCopies(10, stem + " " + i)));
        }
        return texts;
    }

    /** Asks again until the answer is yes: for what a broker answers before it has taken effect. */
    void until(String what, Callable<Boolean> holds) throws Exception {
        Exception last = null;
        while (System.currentTimeMillis() < deadlineMs) {
            try {
                if (holds.call()) {
                    return;
                }
            } catch (ExecutionException failure) {
                last = failure;
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException(what + ": never", last);
    }

    static void expect(String what, Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new IllegalStateException(what + ": got " + got + ", expected " + wanted);
        }
    }

    static List<String> list(String... values) {
        return Arrays.asList(values);
    }
}
