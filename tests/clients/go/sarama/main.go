// sarama: hand-written message versions, chosen by the Kafka version that the user claims.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"barnabas.test/clients/harness"
	"github.com/IBM/sarama"
)

func main() {
	features := map[string]harness.Feature{
		"connect":             connect,
		"create-topic":        createTopic,
		"describe-topic":      describeTopic,
		"idempotence":         produceWith("idempotence", idempotent),
		"assign":              assign,
		"headers":             headers,
		"timestamps":          timestamps,
		"offsets-for-times":   offsetsForTimes,
		"list-offsets":        listOffsets,
		"describe-configs":    describeConfigs,
		"alter-configs":       alterConfigs,
		"create-partitions":   createPartitions,
		"delete-records":      deleteRecords,
		"delete-topic":        deleteTopic,
		"group":               group,
		"transaction":         transaction,
		"transaction-offsets": transactionOffsets,
	}
	for name, codec := range map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	} {
		features["codec-"+name] = produceWith("codec-"+name, func(c *sarama.Config) { c.Producer.Compression = codec })
	}
	harness.Main("sarama", "github.com/IBM/sarama", features)
}

func settings(changes ...func(*sarama.Config)) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.MaxMessages = 100
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Metadata.Retry.Backoff = 20 * time.Millisecond
	for _, change := range changes {
		change(config)
	}
	return config
}

func idempotent(c *sarama.Config) {
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
}

func newTopic(run *harness.Run, name string, partitions int32, configs map[string]*string) (string, sarama.ClusterAdmin, error) {
	admin, err := sarama.NewClusterAdmin([]string{run.Bootstrap}, settings())
	if err != nil {
		return "", nil, err
	}
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs}
	return run.Topic(name), admin, admin.CreateTopic(run.Topic(name), detail, false)
}

func send(run *harness.Run, messages []*sarama.ProducerMessage, changes ...func(*sarama.Config)) error {
	producer, err := sarama.NewSyncProducer([]string{run.Bootstrap}, settings(changes...))
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.SendMessages(messages)
}

func messages(topic string, values []string) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, len(values))
	for i, value := range values {
		made[i] = &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
	}
	return made
}

func read(ctx context.Context, run *harness.Run, topic string, partition int32, start int64, count int,
	changes ...func(*sarama.Config)) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumer([]string{run.Bootstrap}, settings(changes...))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	stream, err := consumer.ConsumePartition(topic, partition, start)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var records []*sarama.ConsumerMessage
	for len(records) < count {
		select {
		case message := <-stream.Messages():
			records = append(records, message)
		case <-ctx.Done():
			return nil, fmt.Errorf("after %d of %d records: %w", len(records), count, ctx.Err())
		}
	}
	return records, nil
}

func texts(records []*sarama.ConsumerMessage) []string {
	values := make([]string, len(records))
	for i, record := range records {
		values[i] = string(record.Value)
	}
	return values
}

func produceWith(name string, change func(*sarama.Config)) harness.Feature {
	return func(ctx context.Context, run *harness.Run) error {
		topic, admin, err := newTopic(run, name, 1, nil)
		if err != nil {
			return err
		}
		defer admin.Close()
		values := harness.Values(name, 300)
		sent := messages(topic, values)
		if err := send(run, sent, change); err != nil {
			return err
		}
		if err := harness.Expect("last offset", sent[299].Offset, 299); err != nil {
			return err
		}
		records, err := read(ctx, run, topic, 0, sarama.OffsetOldest, len(values))
		if err != nil {
			return err
		}
		return harness.Expect("values", texts(records), values)
	}
}

func connect(_ context.Context, run *harness.Run) error {
	client, err := sarama.NewClient([]string{run.Bootstrap}, settings())
	if err != nil {
		return err
	}
	defer client.Close()
	broker := client.Brokers()[0]
	if err := broker.Open(settings()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return err
	}
	answer, err := broker.ApiVersions(&sarama.ApiVersionsRequest{
		Version: 3, ClientSoftwareName: "sarama", ClientSoftwareVersion: "1",
	})
	if err != nil {
		return err
	}
	if len(answer.ApiKeys) == 0 || answer.ErrorCode != 0 {
		return fmt.Errorf("%d apis, error %d", len(answer.ApiKeys), answer.ErrorCode)
	}
	return harness.Expect("address", broker.Addr(), run.Bootstrap)
}

func group(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "group", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(run, messages(topic, []string{"0", "1", "2", "3", "4"})); err != nil {
		return err
	}
	if err := readAsMember(ctx, run, topic, []string{"0", "1", "2", "3", "4"}); err != nil {
		return err
	}
	if err := send(run, messages(topic, []string{"5"})); err != nil {
		return err
	}
	if err := readAsMember(ctx, run, topic, []string{"5"}); err != nil {
		return err
	}
	return committed(admin, run.Topic("group"), topic, 6)
}

func committed(admin sarama.ClusterAdmin, group, topic string, want int64) error {
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	if err != nil {
		return err
	}
	return harness.Expect("committed offset", offsets.GetBlock(topic, 0).Offset, want)
}

// member reads until it has enough, commits, and leaves.
type member struct {
	values []string
	want   int
	leave  context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.values = append(m.values, string(message.Value))
		session.MarkMessage(message, "")
		if len(m.values) == m.want {
			session.Commit()
			m.leave()
			break
		}
	}
	return nil
}

func readAsMember(ctx context.Context, run *harness.Run, topic string, want []string) error {
	consumers, err := sarama.NewConsumerGroup([]string{run.Bootstrap}, run.Topic("group"), settings())
	if err != nil {
		return err
	}
	defer consumers.Close()
	inner, leave := context.WithCancel(ctx)
	defer leave()
	reader := &member{want: len(want), leave: leave}
	for inner.Err() == nil {
		if err := consumers.Consume(inner, []string{topic}, reader); err != nil {
			return err
		}
	}
	return harness.Expect("values", reader.values, want)
}

func transactional(id string) func(*sarama.Config) {
	return func(c *sarama.Config) {
		idempotent(c)
		c.Producer.Transaction.ID = id
		c.Producer.Transaction.Timeout = 20 * time.Second
	}
}

func transaction(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "transaction", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	producer, err := sarama.NewSyncProducer([]string{run.Bootstrap}, settings(transactional(run.Topic("transaction"))))
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, round := range []struct {
		value string
		end   func() error
	}{{"kept", producer.CommitTxn}, {"lost", producer.AbortTxn}, {"last", producer.CommitTxn}} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := producer.SendMessages(messages(topic, []string{round.value, round.value, round.value})); err != nil {
			return err
		}
		if err := round.end(); err != nil {
			return err
		}
	}
	records, err := read(ctx, run, topic, 0, sarama.OffsetOldest, 6,
		func(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadCommitted })
	if err != nil {
		return err
	}
	return harness.Expect("values", texts(records), []string{"kept", "kept", "kept", "last", "last", "last"})
}

func transactionOffsets(ctx context.Context, run *harness.Run) error {
	name := run.Topic("transaction-offsets")
	topic, admin, err := newTopic(run, "transaction-offsets", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	producer, err := sarama.NewSyncProducer([]string{run.Bootstrap}, settings(transactional(name)))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(messages(topic, []string{"0", "1", "2"})); err != nil {
		return err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: 3, LeaderEpoch: -1}}}
	if err := producer.AddOffsetsToTxn(offsets, name); err != nil {
		return err
	}
	if err := producer.CommitTxn(); err != nil {
		return err
	}
	return harness.Until(ctx, "offset 3 was committed", func() (bool, error) {
		err := committed(admin, name, topic, 3)
		return err == nil, err
	})
}
