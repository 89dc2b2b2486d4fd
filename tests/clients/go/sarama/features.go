package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"barnabas.test/clients/harness"
	"github.com/IBM/sarama"
)

func createTopic(ctx context.Context, run *harness.Run) error {
	retention := "99999"
	topic, admin, err := newTopic(run, "create", 3, map[string]*string{"retention.ms": &retention})
	if err != nil {
		return err
	}
	defer admin.Close()
	err = harness.Until(ctx, "three partitions were listed", func() (bool, error) {
		listed, err := admin.ListTopics()
		return listed[topic].NumPartitions == 3, err
	})
	if err != nil {
		return err
	}
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	if !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("creating twice: %w", err)
	}
	return nil
}

func describeTopic(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "describe", 3, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	var described []*sarama.TopicMetadata
	err = harness.Until(ctx, "three partitions were described", func() (bool, error) {
		described, err = admin.DescribeTopics([]string{topic})
		return err == nil && len(described[0].Partitions) == 3, err
	})
	if err != nil {
		return err
	}
	for _, partition := range described[0].Partitions {
		got := fmt.Sprint(int16(partition.Err), partition.Replicas, partition.Isr, partition.Leader >= 0)
		want := fmt.Sprint(0, []int32{partition.Leader}, []int32{partition.Leader}, true)
		if err := harness.Expect("partition", got, want); err != nil {
			return err
		}
	}
	return nil
}

func assign(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "assign", 3, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	var sent []*sarama.ProducerMessage
	for i := range 15 {
		value := sarama.StringEncoder(fmt.Sprint(i))
		sent = append(sent, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % 3), Value: value})
	}
	if err := send(run, sent); err != nil {
		return err
	}
	for partition, want := range map[int32][]string{0: {"6", "9", "12"}, 2: {"8", "11", "14"}} {
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
	topic, admin, err := newTopic(run, "headers", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	sent := []sarama.RecordHeader{
		{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("a"), Value: []byte("2")}, {Key: []byte("b"), Value: []byte{}},
	}
	err = send(run, []*sarama.ProducerMessage{
		{Topic: topic, Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder("value"), Headers: sent},
		{Topic: topic, Key: sarama.StringEncoder("tombstone")},
	})
	if err != nil {
		return err
	}
	records, err := read(ctx, run, topic, 0, sarama.OffsetOldest, 2)
	if err != nil {
		return err
	}
	var got []string
	for _, header := range records[0].Headers {
		got = append(got, string(header.Key)+"="+string(header.Value))
	}
	if err := harness.Expect("headers", got, []string{"a=1", "a=2", "b="}); err != nil {
		return err
	}
	keys := fmt.Sprint(string(records[0].Key), string(records[1].Key), records[1].Value == nil)
	return harness.Expect("keys and null", keys, "keytombstonetrue")
}

func sendTimed(run *harness.Run, topic string) error {
	var sent []*sarama.ProducerMessage
	for i := range 20 {
		stamp := time.UnixMilli(1_000_000 + 10*int64(i))
		sent = append(sent, &sarama.ProducerMessage{Topic: topic, Timestamp: stamp, Value: sarama.StringEncoder("x")})
	}
	return send(run, sent)
}

func timestamps(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "timestamps", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := sendTimed(run, topic); err != nil {
		return err
	}
	records, err := read(ctx, run, topic, 0, sarama.OffsetOldest, 20)
	if err != nil {
		return err
	}
	return harness.Expect("timestamp", records[7].Timestamp.UnixMilli(), 1_000_070)
}

func offsets(run *harness.Run, topic string, times ...int64) ([]int64, error) {
	client, err := sarama.NewClient([]string{run.Bootstrap}, settings())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []int64
	for _, at := range times {
		offset, err := client.GetOffset(topic, 0, at)
		if err != nil {
			return nil, err
		}
		found = append(found, offset)
	}
	return found, nil
}

func offsetsForTimes(_ context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "times", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := sendTimed(run, topic); err != nil {
		return err
	}
	found, err := offsets(run, topic, 1_000_055, 9_000_000)
	if err != nil {
		return err
	}
	return harness.Expect("offsets", found, []int64{6, -1})
}

func listOffsets(_ context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "offsets", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(run, messages(topic, harness.Values("offsets", 10))); err != nil {
		return err
	}
	found, err := offsets(run, topic, sarama.OffsetOldest, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	return harness.Expect("offsets", found, []int64{0, 10})
}

func config(admin sarama.ClusterAdmin, topic, key string) (string, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if entry.Name == key {
			return entry.Value, nil
		}
	}
	return "", fmt.Errorf("no %s among %d configs", key, len(entries))
}

func describeConfigs(_ context.Context, run *harness.Run) error {
	retention := "99999"
	topic, admin, err := newTopic(run, "describe-configs", 1, map[string]*string{"retention.ms": &retention})
	if err != nil {
		return err
	}
	defer admin.Close()
	set, err := config(admin, topic, "retention.ms")
	if err != nil {
		return err
	}
	standard, err := config(admin, topic, "cleanup.policy")
	if err != nil {
		return err
	}
	return harness.Expect("configs", set+" "+standard, "99999 delete")
}

// alterConfigs uses the old request, which replaces everything, and then the incremental one.
func alterConfigs(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "alter-configs", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	first, second := "66666", "77777"
	becomes := func(want string) error {
		return harness.Until(ctx, "retention.ms became "+want, func() (bool, error) {
			value, err := config(admin, topic, "retention.ms")
			return value == want, err
		})
	}
	if err := admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &first}, false); err != nil {
		return err
	}
	if err := becomes(first); err != nil {
		return err
	}
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &second},
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false); err != nil {
		return err
	}
	return becomes(second)
}

func createPartitions(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "create-partitions", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreatePartitions(topic, 3, nil, false); err != nil {
		return err
	}
	return harness.Until(ctx, "three partitions were listed", func() (bool, error) {
		described, err := admin.DescribeTopics([]string{topic})
		return err == nil && len(described[0].Partitions) == 3, err
	})
}

func deleteRecords(_ context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "delete-records", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(run, messages(topic, harness.Values("delete", 10))); err != nil {
		return err
	}
	if err := admin.DeleteRecords(topic, map[int32]int64{0: 7}); err != nil {
		return err
	}
	found, err := offsets(run, topic, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	return harness.Expect("start", found, []int64{7})
}

func deleteTopic(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(run, "delete", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.DeleteTopic(topic); err != nil {
		return err
	}
	return harness.Until(ctx, "the topic was gone", func() (bool, error) {
		listed, err := admin.ListTopics()
		_, there := listed[topic]
		return err == nil && !there, err
	})
}
