package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"barnabas.test/clients/harness"
	"github.com/segmentio/kafka-go"
)

func connect(ctx context.Context, run *harness.Run) error {
	answer, err := client(run).ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err != nil {
		return err
	}
	if len(answer.ApiKeys) == 0 || answer.Error != nil {
		return fmt.Errorf("%d apis, error %w", len(answer.ApiKeys), answer.Error)
	}
	metadata, err := client(run).Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return err
	}
	broker := metadata.Brokers[0]
	return harness.Expect("address", fmt.Sprintf("%s:%d", broker.Host, broker.Port), run.Bootstrap)
}

func partitions(ctx context.Context, run *harness.Run, topic string) ([]kafka.Partition, error) {
	metadata, err := client(run).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	return metadata.Topics[0].Partitions, metadata.Topics[0].Error
}

// three waits for three partitions: a topic is known a moment after it was created.
func three(ctx context.Context, run *harness.Run, topic string) ([]kafka.Partition, error) {
	var listed []kafka.Partition
	err := harness.Until(ctx, "three partitions were listed", func() (bool, error) {
		found, err := partitions(ctx, run, topic)
		listed = found
		return len(found) == 3, err
	})
	return listed, err
}

func createTopic(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "create", 3, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "99999"})
	if err != nil {
		return err
	}
	if _, err := three(ctx, run, topic); err != nil {
		return err
	}
	if _, err := newTopic(ctx, run, "create", 3); !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("creating twice: %w", err)
	}
	return nil
}

func describeTopic(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "describe", 3)
	if err != nil {
		return err
	}
	listed, err := three(ctx, run, topic)
	if err != nil {
		return err
	}
	for _, partition := range listed {
		got := fmt.Sprint(partition.Error, len(partition.Replicas), len(partition.Isr), partition.Leader.Host != "")
		if err := harness.Expect("partition", got, fmt.Sprint(nil, 1, 1, true)); err != nil {
			return err
		}
	}
	return nil
}

func offsets(ctx context.Context, run *harness.Run, topic string, asked ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	answer, err := client(run).ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: asked},
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	return answer.Topics[topic][0], answer.Topics[topic][0].Error
}

func offsetsForTimes(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "times", 1)
	if err != nil {
		return err
	}
	if err := sendTimed(ctx, run, topic); err != nil {
		return err
	}
	connection, err := kafka.DialLeader(ctx, "tcp", run.Bootstrap, topic, 0)
	if err != nil {
		return err
	}
	defer connection.Close()
	for at, want := range map[int64]int64{1_000_055: 6, 1_000_000: 0} {
		offset, err := connection.ReadOffset(time.UnixMilli(at))
		if err != nil {
			return err
		}
		if err := harness.Expect("offset", offset, want); err != nil {
			return err
		}
	}
	return nil
}

func listOffsets(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "offsets", 1)
	if err != nil {
		return err
	}
	if err := send(ctx, run, topic, 0, messages(harness.Values("offsets", 10))...); err != nil {
		return err
	}
	found, err := offsets(ctx, run, topic, kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0))
	if err != nil {
		return err
	}
	return harness.Expect("offsets", fmt.Sprint(found.FirstOffset, found.LastOffset), "0 10")
}

func config(ctx context.Context, run *harness.Run, topic, key string) (string, error) {
	answer, err := client(run).DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	if err != nil {
		return "", err
	}
	for _, entry := range answer.Resources[0].ConfigEntries {
		if entry.ConfigName == key {
			return entry.ConfigValue, answer.Resources[0].Error
		}
	}
	return "", fmt.Errorf("no %s among %d configs", key, len(answer.Resources[0].ConfigEntries))
}

func describeConfigs(ctx context.Context, run *harness.Run) error {
	retention := kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "99999"}
	topic, err := newTopic(ctx, run, "describe-configs", 1, retention)
	if err != nil {
		return err
	}
	set, err := config(ctx, run, topic, "retention.ms")
	if err != nil {
		return err
	}
	standard, err := config(ctx, run, topic, "cleanup.policy")
	if err != nil {
		return err
	}
	return harness.Expect("configs", set+" "+standard, "99999 delete")
}

func alterConfigs(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "alter-configs", 1)
	if err != nil {
		return err
	}
	answer, err := client(run).IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "retention.ms", Value: "77777", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	if err != nil {
		return err
	}
	if err := answer.Resources[0].Error; err != nil {
		return err
	}
	return harness.Until(ctx, "retention.ms became 77777", func() (bool, error) {
		value, err := config(ctx, run, topic, "retention.ms")
		return value == "77777", err
	})
}

func createPartitions(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "create-partitions", 1)
	if err != nil {
		return err
	}
	answer, err := client(run).CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 3}},
	})
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	_, err = three(ctx, run, topic)
	return err
}

func deleteTopic(ctx context.Context, run *harness.Run) error {
	topic, err := newTopic(ctx, run, "delete", 1)
	if err != nil {
		return err
	}
	answer, err := client(run).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	return harness.Until(ctx, "the topic was gone", func() (bool, error) {
		metadata, err := client(run).Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return false, err
		}
		for _, listed := range metadata.Topics {
			if listed.Name == topic {
				return false, nil
			}
		}
		return true, nil
	})
}
