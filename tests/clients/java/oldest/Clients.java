import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Producers and consumers of one feature. There is no admin client: a topic is made by asking for it. */
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

    private Properties properties(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    KafkaProducer<String, String> producer(String... pairs) {
        Properties properties = properties(pairs);
        properties.put("max.block.ms", String.valueOf(timeoutMs));
        properties.put("acks", "all");
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

    TopicPartition newPartition(String name) {
        TopicPartition partition = new TopicPartition(prefix + "-" + name, 0);
        describe(partition.topic());
        return partition;
    }

    /** Waits, as a producer does, until the topic is there. */
    List<PartitionInfo> describe(String topic) {
        try (KafkaProducer<String, String> producer = producer()) {
            return producer.partitionsFor(topic);
        }
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

    void sendValues(TopicPartition to, String... values) throws Exception {
        List<ProducerRecord<String, String>> records = new ArrayList<>();
        for (String value : values) {
            records.add(new ProducerRecord<>(to.topic(), to.partition(), (String) null, value));
        }
        send(records);
    }

    List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        while (records.size() < count) {
            if (System.currentTimeMillis() > deadlineMs) {
                throw new IllegalStateException("silence after " + records.size() + " of " + count + " records");
            }
            consumer.poll(200).forEach(records::add);
        }
        return records;
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        List<String> values = new ArrayList<>();
        for (ConsumerRecord<String, String> record : records) {
            values.add(record.value());
        }
        return values;
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
