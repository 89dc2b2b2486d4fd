package main

import (
	"context"
	"fmt"

	"barnabas.test/clients/harness"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func connect(ctx context.Context, run *harness.Run) error {
	cl, err := client(run)
	if err != nil {
		return err
	}
	defer cl.Close()
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "franz-go", "1"
	answer, err := request.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return err
	}
	brokers, err := kadm.NewClient(cl).ListBrokers(ctx)
	if err != nil {
		return err
	}
	return harness.Expect("brokers", fmt.Sprintf("%s:%d", brokers[0].Host, brokers[0].Port), run.Bootstrap)
}

// listedWhole waits for three partitions: a topic is known a moment after it was created.
func listedWhole(ctx context.Context, admin *kadm.Client, topic string) (kadm.TopicDetails, error) {
	var listed kadm.TopicDetails
	err := harness.Until(ctx, "three partitions were listed", func() (bool, error) {
		found, err := admin.ListTopics(ctx, topic)
		listed = found
		return len(found[topic].Partitions) == 3, err
	})
	return listed, err
}

func createTopic(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "create", 3, map[string]*string{"retention.ms": kadm.StringPtr("99999")})
	if err != nil {
		return err
	}
	defer admin.Close()
	listed, err := listedWhole(ctx, admin, topic)
	if err != nil {
		return err
	}
	if err := harness.Expect("partitions", listed[topic].Partitions.Numbers(), []int32{0, 1, 2}); err != nil {
		return err
	}
	_, err = admin.CreateTopic(ctx, 1, 1, nil, topic)
	return harness.Expect("creating twice", err, kerr.TopicAlreadyExists)
}

func describeTopic(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "describe", 3, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	listed, err := listedWhole(ctx, admin, topic)
	if err != nil {
		return err
	}
	for _, partition := range listed[topic].Partitions.Sorted() {
		got := fmt.Sprint(partition.Err, partition.Replicas, partition.ISR, partition.Leader >= 0)
		want := fmt.Sprint(nil, []int32{partition.Leader}, []int32{partition.Leader}, true)
		if err := harness.Expect("partition", got, want); err != nil {
			return err
		}
	}
	return harness.Expect("partitions", listed[topic].Partitions.Numbers(), []int32{0, 1, 2})
}

func offsetsForTimes(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "times", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := sendTimed(ctx, run, topic); err != nil {
		return err
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, 1_000_055, topic)
	if err != nil {
		return err
	}
	offset, _ := listed.Lookup(topic, 0)
	return harness.Expect("offset and time", fmt.Sprint(offset.Offset, offset.Timestamp), fmt.Sprint(6, 1_000_060))
}

func listOffsets(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "offsets", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(ctx, run, topic, harness.Values("offsets", 10)); err != nil {
		return err
	}
	start, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	end, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	first, _ := start.Lookup(topic, 0)
	last, _ := end.Lookup(topic, 0)
	return harness.Expect("offsets", fmt.Sprint(first.Offset, last.Offset), "0 10")
}

func config(ctx context.Context, admin *kadm.Client, topic, key string) (string, error) {
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	resource, err := described.On(topic, nil)
	if err != nil {
		return "", err
	}
	for _, entry := range resource.Configs {
		if entry.Key == key {
			return entry.MaybeValue(), resource.Err
		}
	}
	return "", fmt.Errorf("no %s among %d configs", key, len(resource.Configs))
}

func describeConfigs(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "describe-configs", 1, map[string]*string{"retention.ms": kadm.StringPtr("99999")})
	if err != nil {
		return err
	}
	defer admin.Close()
	set, err := config(ctx, admin, topic, "retention.ms")
	if err != nil {
		return err
	}
	standard, err := config(ctx, admin, topic, "cleanup.policy")
	if err != nil {
		return err
	}
	return harness.Expect("configs", set+" "+standard, "99999 delete")
}

func alterConfigs(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "alter-configs", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("77777")}}
	altered, err := admin.AlterTopicConfigs(ctx, change, topic)
	if err != nil {
		return err
	}
	if err := altered[0].Err; err != nil {
		return err
	}
	return harness.Until(ctx, "retention.ms became 77777", func() (bool, error) {
		value, err := config(ctx, admin, topic, "retention.ms")
		return value == "77777", err
	})
}

func createPartitions(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "create-partitions", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	created, err := admin.UpdatePartitions(ctx, 3, topic)
	if err != nil {
		return err
	}
	if err := created[topic].Err; err != nil {
		return err
	}
	_, err = listedWhole(ctx, admin, topic)
	return err
}

func deleteRecords(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "delete-records", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := send(ctx, run, topic, harness.Values("delete", 10)); err != nil {
		return err
	}
	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 7, -1)
	deleted, err := admin.DeleteRecords(ctx, before)
	if err != nil {
		return err
	}
	answer, _ := deleted.Lookup(topic, 0)
	if answer.Err != nil {
		return answer.Err
	}
	start, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	first, _ := start.Lookup(topic, 0)
	return harness.Expect("low watermark and start", fmt.Sprint(answer.LowWatermark, first.Offset), "7 7")
}

func deleteTopic(ctx context.Context, run *harness.Run) error {
	topic, admin, err := newTopic(ctx, run, "delete", 1, nil)
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	return harness.Until(ctx, "the topic was gone", func() (bool, error) {
		listed, err := admin.ListTopics(ctx)
		return err == nil && !listed.Has(topic), err
	})
}
