// segmentio/kafka-go: readers and writers of its own, low versions of most requests. It has
// neither an idempotent nor a transactional writer, and cannot delete records.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"barnabas.test/clients/harness"
	"github.com/segmentio/kafka-go"
)

func main() {
	features := map[string]harness.Feature{
		"connect":           connect,
		"create-topic":      createTopic,
		"describe-topic":    describeTopic,
		"assign":            assign,
		"headers":           headers,
		"timestamps":        timestamps,
		"offsets-for-times": offsetsForTimes,
		"list-offsets":      listOffsets,
		"describe-configs":  describeConfigs,
		"alter-configs":     alterConfigs,
		"create-partitions": createPartitions,
		"delete-topic":      deleteTopic,
		"group":             group,
	}
	for name, codec := range map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	} {
		features["codec-"+name] = produceWith("codec-"+name, codec)
	}
	harness.Main("kafka-go", "github.com/segmentio/kafka-go", features)
}

func client(run *harness.Run) *kafka.Client { return &kafka.Client{Addr: kafka.TCP(run.Bootstrap)} }

func newTopic(ctx context.Context, run *harness.Run, name string, partitions int, configs ...kafka.ConfigEntry) (string, error) {
	topic := run.Topic(name)
	answer, err := client(run).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs},
	}})
	if err != nil {
		return topic, err
	}
	return topic, answer.Errors[topic]
}

// toPartition sends a message where its writer data says.
func toPartition(message kafka.Message, partitions ...int) int {
	if partition, ok := message.WriterData.(int); ok {
		return partition
	}
	return partitions[0]
}

func send(ctx context.Context, run *harness.Run, topic string, codec kafka.Compression, messages ...kafka.Message) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(run.Bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec,
		BatchTimeout: 5 * time.Millisecond, Balancer: kafka.BalancerFunc(toPartition),
	}
	return errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
}

func messages(values []string) []kafka.Message {
	made := make([]kafka.Message, len(values))
	for i, value := range values {
		made[i] = kafka.Message{Value: []byte(value)}
	}
	return made
}

func read(ctx context.Context, run *harness.Run, topic string, partition int, start int64, count int) ([]kafka.Message, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{run.Bootstrap}, Topic: topic, Partition: partition, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(start); err != nil {
		return nil, err
	}
	var records []kafka.Message
	for len(records) < count {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(records), count, err)
		}
		records = append(records, message)
	}
	return records, nil
}

func texts(records []kafka.Message) []string {
	values := make([]string, len(records))
	for i, record := range records {
		values[i] = string(record.Value)
	}
	return values
}

func produceWith(name string, codec kafka.Compression) harness.Feature {
	return func(ctx context.Context, run *harness.Run) error {
		topic, err := newTopic(ctx, run, name, 1)
		if err != nil {
			return err
		}
		values := harness.Values(name, 300)
		if err := send(ctx, run, topic, codec, messages(values)...); err != nil {
			return err
		}
		records, err := read(ctx, run, topic, 0, kafka.FirstOffset, len(values))
		if err != nil {
			return err
		}
		return harness.Expect("values", texts(records), values)
	}
}

func assign(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "assign", 3)
	if err != nil {
		return err
	}
	var sent []kafka.Message
	for i := range 15 {
		sent = append(sent, kafka.Message{Value: fmt.Append(nil, i), WriterData: i % 3})
	}
	if err := send(ctx, run, topic, 0, sent...); err != nil {
		return err
	}
	for partition, want := range map[int][]string{0: {"6", "9", "12"}, 2: {"8", "11", "14"}} {
		records, err := read(ctx, run, topic, partition, 2, 3)
		if err != nil {
			return err
		}
		if err := harness.Expect("values", texts(records), want); err != nil {
			return err
		}
	}
	return nil
}

func headers(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "headers", 1)
	if err != nil {
		return err
	}
	sent := []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte{}}}
	err = send(ctx, run, topic, 0,
		kafka.Message{Key: []byte("key"), Value: []byte("value"), Headers: sent}, kafka.Message{Key: []byte("tombstone")})
	if err != nil {
		return err
	}
	records, err := read(ctx, run, topic, 0, kafka.FirstOffset, 2)
	if err != nil {
		return err
	}
	if err := harness.Expect("headers", records[0].Headers, sent); err != nil {
		return err
	}
	got := fmt.Sprint(string(records[0].Key), string(records[1].Key), len(records[1].Value))
	return harness.Expect("keys and null", got, "keytombstone0")
}

func sendTimed(ctx context.Context, run *harness.Run, topic string) error {
	var sent []kafka.Message
	for i := range 20 {
		sent = append(sent, kafka.Message{Value: []byte("x"), Time: time.UnixMilli(1_000_000 + 10*int64(i))})
	}
	return send(ctx, run, topic, 0, sent...)
}

func timestamps(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "timestamps", 1)
	if err != nil {
		return err
	}
	if err := sendTimed(ctx, run, topic); err != nil {
		return err
	}
	records, err := read(ctx, run, topic, 0, kafka.FirstOffset, 20)
	if err != nil {
		return err
	}
	return harness.Expect("timestamp", records[7].Time.UnixMilli(), 1_000_070)
}

func group(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "group", 1)
	if err != nil {
		return err
	}
	if err := send(ctx, run, topic, 0, messages([]string{"0", "1", "2", "3", "4"})...); err != nil {
		return err
	}
	if err := readAsMember(ctx, run, topic, []string{"0", "1", "2", "3", "4"}); err != nil {
		return err
	}
	if err := send(ctx, run, topic, 0, messages([]string{"5"})...); err != nil {
		return err
	}
	if err := readAsMember(ctx, run, topic, []string{"5"}); err != nil {
		return err
	}
	committed, err := client(run).ConsumerOffsets(ctx, kafka.TopicAndGroup{Topic: topic, GroupId: run.Topic("group")})
	if err != nil {
		return err
	}
	return harness.Expect("committed offset", committed[0], 6)
}

func readAsMember(ctx context.Context, run *harness.Run, topic string, want []string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{run.Bootstrap}, GroupID: run.Topic("group"), GroupTopics: []string{topic},
		MaxWait: 200 * time.Millisecond, StartOffset: kafka.FirstOffset, SessionTimeout: 10 * time.Second,
	})
	defer reader.Close()
	var records []kafka.Message
	for len(records) < len(want) {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return fmt.Errorf("after %d of %d records: %w", len(records), len(want), err)
		}
		records = append(records, message)
	}
	if err := harness.Expect("values", texts(records), want); err != nil {
		return err
	}
	return reader.CommitMessages(ctx, records...)
}
