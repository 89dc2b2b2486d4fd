// franz-go: starts every negotiation at the newest ApiVersions and speaks topic ids.
package main

import (
	"context"
	"fmt"
	"time"

	"barnabas.test/clients/harness"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	features := map[string]harness.Feature{
		"connect":             connect,
		"create-topic":        createTopic,
		"describe-topic":      describeTopic,
		"idempotence":         idempotence,
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
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		features["codec-"+name] = produceWith("codec-"+name,
			kgo.ProducerBatchCompression(codec), kgo.DisableIdempotentWrite())
	}
	harness.Main("franz-go", "github.com/twmb/franz-go", features)
}

func client(run *harness.Run, options ...kgo.Opt) (*kgo.Client, error) {
	security, err := secured()
	if err != nil {
		return nil, err
	}
	options = append([]kgo.Opt{
		kgo.SeedBrokers(run.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)
	return kgo.NewClient(append(security, options...)...)
}

func newTopic(ctx context.Context, run *harness.Run, name string, partitions int32,
	configs map[string]*string) (string, *kadm.Client, error) {
	cl, err := client(run)
	if err != nil {
		return "", nil, err
	}
	admin := kadm.NewClient(cl)
	_, err = admin.CreateTopic(ctx, partitions, 1, configs, run.Topic(name))
	return run.Topic(name), admin, err
}

func send(ctx context.Context, run *harness.Run, topic string, values []string, options ...kgo.Opt) error {
	cl, err := client(run, options...)
	if err != nil {
		return err
	}
	defer cl.Close()
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		records[i] = &kgo.Record{Topic: topic, Value: []byte(value)}
	}
	for i, result := range cl.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return result.Err
		}
		if result.Record.Offset != int64(i) {
			return fmt.Errorf("record %d was given offset %d", i, result.Record.Offset)
		}
	}
	return nil
}

func read(ctx context.Context, cl *kgo.Client, count int) ([]*kgo.Record, error) {
	var records []*kgo.Record
	for len(records) < count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(records), count, err)
		}
		records = append(records, fetches.Records()...)
	}
	return records, nil
}

func readPartition(ctx context.Context, run *harness.Run, topic string, count int,
	options ...kgo.Opt) ([]*kgo.Record, error) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	cl, err := client(run, append([]kgo.Opt{kgo.ConsumePartitions(start)}, options...)...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return read(ctx, cl, count)
}

func texts(records []*kgo.Record) []string {
	values := make([]string, len(records))
	for i, record := range records {
		values[i] = string(record.Value)
	}
	return values
}

func produceWith(name string, options ...kgo.Opt) harness.Feature {
	return func(ctx context.Context, run *harness.Run) error {
		topic, admin, err := newTopic(ctx, run, name, 1, nil)
		if err != nil {
			return err
		}
		defer admin.Close()
		values := harness.Values(name, 300)
		if err := send(ctx, run, topic, values, options...); err != nil {
			return err
		}
		records, err := readPartition(ctx, run, topic, len(values))
		if err != nil {
			return err
		}
		return harness.Expect("values", texts(records), values)
	}
}

func idempotence(ctx context.Context, run *harness.Run) error {
	return produceWith("idempotence")(ctx, run)
}

func assign(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "assign", 3, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	producer, err := client(run)
	if err != nil {
		return err
	}
	defer producer.Close()
	for i := range 15 {
		record := &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: fmt.Appendf(nil, "%d", i)}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	start := kgo.NewOffset().At(2)
	cl, err := client(run, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: start, 2: start}}))
	if err != nil {
		return err
	}
	defer cl.Close()
	records, err := read(ctx, cl, 6)
	if err != nil {
		return err
	}
	got := map[int32][]string{}
	for _, record := range records {
		got[record.Partition] = append(got[record.Partition], string(record.Value))
	}
	return harness.Expect("values", got, map[int32][]string{0: {"6", "9", "12"}, 2: {"8", "11", "14"}})
}

func headers(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "headers", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	cl, err := client(run)
	if err != nil {
		return err
	}
	defer cl.Close()
	sent := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte{}}}
	err = cl.ProduceSync(ctx,
		&kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte("value"), Headers: sent},
		&kgo.Record{Topic: topic, Key: []byte("tombstone")}).FirstErr()
	if err != nil {
		return err
	}
	records, err := readPartition(ctx, run, topic, 2)
	if err != nil {
		return err
	}
	if err := harness.Expect("headers", records[0].Headers, sent); err != nil {
		return err
	}
	got := fmt.Sprint(string(records[0].Key), string(records[1].Key), records[1].Value == nil)
	return harness.Expect("keys and null", got, "keytombstonetrue")
}

func sendTimed(ctx context.Context, run *harness.Run, topic string) error {
	cl, err := client(run)
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range 20 {
		stamp := time.UnixMilli(1_000_000 + 10*int64(i))
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Timestamp: stamp}).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func timestamps(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "timestamps", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := sendTimed(ctx, run, topic); err != nil {
		return err
	}
	records, err := readPartition(ctx, run, topic, 20)
	if err != nil {
		return err
	}
	return harness.Expect("timestamp", records[7].Timestamp.UnixMilli(), 1_000_070)
}

func group(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "group", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(ctx, run, topic, []string{"0", "1", "2", "3", "4"}); err != nil {
		return err
	}
	for round, want := range [][]string{{"0", "1", "2", "3", "4"}, {"5"}} {
		if round == 1 {
			cl, err := client(run)
			if err != nil {
				return err
			}
			err = cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("5")}).FirstErr()
			cl.Close()
			if err != nil {
				return err
			}
		}
		if err := readAsMember(ctx, run, topic, want); err != nil {
			return err
		}
	}
	committed, err := admin.FetchOffsets(ctx, run.Topic("group"))
	if err != nil {
		return err
	}
	offset, _ := committed.Lookup(topic, 0)
	return harness.Expect("committed offset", offset.At, 6)
}

func readAsMember(ctx context.Context, run *harness.Run, topic string, want []string) error {
	cl, err := client(run, kgo.ConsumerGroup(run.Topic("group")), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	records, err := read(ctx, cl, len(want))
	if err != nil {
		return err
	}
	if err := harness.Expect("values", texts(records), want); err != nil {
		return err
	}
	return cl.CommitUncommittedOffsets(ctx)
}

func transaction(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "transaction", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	cl, err := client(run, kgo.TransactionalID(run.Topic("transaction")), kgo.TransactionTimeout(20*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, round := range []struct {
		value string
		end   kgo.TransactionEndTry
	}{{"kept", kgo.TryCommit}, {"lost", kgo.TryAbort}, {"last", kgo.TryCommit}} {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		for range 3 {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(round.value)}).FirstErr(); err != nil {
				return err
			}
		}
		if err := cl.EndTransaction(ctx, round.end); err != nil {
			return err
		}
	}
	records, err := readPartition(ctx, run, topic, 6, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	return harness.Expect("values", texts(records), []string{"kept", "kept", "kept", "last", "last", "last"})
}

func transactionOffsets(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "transaction-offsets", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(ctx, run, topic, []string{"0", "1", "2"}); err != nil {
		return err
	}
	name := run.Topic("transaction-offsets")
	security, err := secured()
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(append(security, kgo.SeedBrokers(run.Bootstrap),
		kgo.TransactionalID(name), kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic),
		kgo.TransactionTimeout(20*time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return err
	}
	defer session.Close()
	for seen := 0; seen < 3; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		seen += fetches.NumRecords()
	}
	if err := session.Begin(); err != nil {
		return err
	}
	committed, err := session.End(ctx, kgo.TryCommit)
	if err != nil || !committed {
		return fmt.Errorf("committed %v: %w", committed, err)
	}
	return harness.Until(ctx, "offset 3 was committed", func() (bool, error) {
		offsets, err := admin.FetchOffsets(ctx, name)
		offset, _ := offsets.Lookup(topic, 0)
		return offset.At == 3, err
	})
}
