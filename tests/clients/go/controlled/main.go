// Reactions of franz-go to faults that the test asks for over HTTP (docs/TESTING.md).
//
// CONTROL_URL is the control interface of `barnabas start --control`.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"barnabas.test/clients/harness"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

// ask sends a request to the control interface and decodes the answer into found, which may be nil.
func ask(method, path string, body, found any) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, os.Getenv("CONTROL_URL")+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, content)
	}
	if found == nil || len(content) == 0 {
		return nil
	}
	return json.Unmarshal(content, found)
}

type fault map[string]any

type rule struct {
	Number int
	Hits   int
}

// with creates a topic and adds a rule for it, runs the work, and removes the rule.
func with(run *harness.Run, name string, added fault, work func(topic string) error) (int, string, error) {
	topic := run.Topic(name)
	if err := ask("PUT", "/topics/"+topic, map[string]int{"partitions": 1}, nil); err != nil {
		return 0, topic, err
	}
	if added == nil {
		return 0, topic, work(topic)
	}
	added["topic"] = topic
	var made rule
	if err := ask("POST", "/faults", added, &made); err != nil {
		return 0, topic, err
	}
	failed := work(topic)
	path := fmt.Sprintf("/faults/%d", made.Number)
	if err := ask("GET", path, nil, &made); err != nil {
		return 0, topic, err
	}
	return made.Hits, topic, errors.Join(failed, ask("DELETE", path, nil, nil))
}

func stored(topic, query string) (int, error) {
	var records []any
	err := ask("GET", "/topics/"+topic+"/records"+query, nil, &records)
	return len(records), err
}

func publish(ctx context.Context, run *harness.Run, topic string, more ...kgo.Opt) error {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(run.Bootstrap, ",")...), kgo.DefaultProduceTopic(topic)}, more...)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, kgo.StringRecord("one")).FirstErr()
}

// onceStored adds a fault to Produce, and expects the record once.
func onceStored(name string, added fault, hitsWanted int) harness.Feature {
	return func(ctx context.Context, run *harness.Run) error {
		hits, topic, err := with(run, name, added, func(topic string) error { return publish(ctx, run, topic) })
		if err != nil {
			return err
		}
		if err := harness.Expect("hits", hits, hitsWanted); err != nil {
			return err
		}
		count, err := stored(topic, "")
		return errors.Join(err, harness.Expect("records", count, 1))
	}
}

func slowBroker(ctx context.Context, run *harness.Run) error {
	added := fault{"api": "Produce", "delay": "60s"}
	_, _, err := with(run, "slow", added, func(topic string) error {
		err := publish(ctx, run, topic,
			kgo.DisableIdempotentWrite(), // with it, a record in flight waits for its outcome
			kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second),
			kgo.RecordDeliveryTimeout(time.Second),
		)
		if !errors.Is(err, kgo.ErrRecordTimeout) {
			return fmt.Errorf("a slow broker ended with %v", err)
		}
		return nil
	})
	return err
}

func zombie(ctx context.Context, run *harness.Run) error {
	_, topic, err := with(run, "zombie", nil, func(topic string) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(run.Bootstrap, ",")...), kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
		if err != nil {
			return err
		}
		defer cl.Close()
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		if err := cl.ProduceSync(ctx, kgo.StringRecord("zombie")).FirstErr(); err != nil {
			return err
		}
		if err := ask("POST", "/producers/"+topic+"/fence", nil, nil); err != nil {
			return err
		}
		err = cl.EndTransaction(ctx, kgo.TryCommit)
		fenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
		if !fenced {
			return fmt.Errorf("the commit of a zombie ended with %v", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	count, err := stored(topic, "?committed=true")
	return errors.Join(err, harness.Expect("committed records", count, 0))
}

func restartBroker() error {
	var brokers []struct{ ID int }
	if err := ask("GET", "/brokers", nil, &brokers); err != nil {
		return err
	}
	return ask("POST", fmt.Sprintf("/brokers/%d/restart", brokers[0].ID), nil, nil)
}

func producer(run *harness.Run, topic string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(strings.Split(run.Bootstrap, ",")...), kgo.DefaultProduceTopic(topic))
}

func send(ctx context.Context, cl *kgo.Client, value string) error {
	return cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr()
}

func expectStored(topic string, wanted int) error {
	count, err := stored(topic, "")
	return errors.Join(err, harness.Expect("records", count, wanted))
}

func restart(ctx context.Context, run *harness.Run) error {
	_, topic, err := with(run, "restart", nil, func(topic string) error {
		cl, err := producer(run, topic)
		if err != nil {
			return err
		}
		defer cl.Close()
		if err := send(ctx, cl, "one"); err != nil {
			return err
		}
		if err := restartBroker(); err != nil {
			return err
		}
		return send(ctx, cl, "two")
	})
	if err != nil {
		return err
	}
	return expectStored(topic, 2)
}

func poisonRecord(ctx context.Context, run *harness.Run) error {
	added := fault{"api": "Produce", "error": "INVALID_RECORD"}
	hits, _, err := with(run, "poison", added, func(topic string) error {
		if err := publish(ctx, run, topic); !errors.Is(err, kerr.InvalidRecord) {
			return fmt.Errorf("a poison record ended with %v", err)
		}
		return nil
	})
	return errors.Join(err, harness.Expect("hits", hits, 1)) // the error is final
}

func fullDisk(ctx context.Context, run *harness.Run) error {
	_, _, err := with(run, "full", nil, func(topic string) error {
		if err := ask("PUT", "/disk", map[string]string{"state": "ENOSPC", "under": topic}, nil); err != nil {
			return err
		}
		failed := publish(ctx, run, topic, kgo.DisableIdempotentWrite(), kgo.RecordDeliveryTimeout(time.Second))
		if err := restartBroker(); err != nil { // with a disk that has room
			return err
		}
		if failed == nil { // ErrRecordTimeout, or the refused connection: the broker has stopped
			return errors.New("a record was stored on a full disk")
		}
		return publish(ctx, run, topic)
	})
	return err
}

// uncleanLeader runs in a cluster of two: the follower misses a record, and then leads alone.
func uncleanLeader(ctx context.Context, run *harness.Run) error {
	_, topic, err := with(run, "unclean", nil, func(topic string) error {
		type state struct {
			Leader int
			InSync []int `json:"in_sync"`
		}
		var now state
		partition := "/topics/" + topic + "/partitions/0"
		if err := ask("GET", partition, nil, &now); err != nil {
			return err
		}
		leader, follower := now.Leader, 3-now.Leader
		cl, err := producer(run, topic)
		if err != nil {
			return err
		}
		defer cl.Close()
		if err := send(ctx, cl, "one"); err != nil {
			return err
		}
		if err := ask("POST", fmt.Sprintf("/brokers/%d/kill", follower), nil, nil); err != nil {
			return err
		}
		for len(now.InSync) != 1 {
			time.Sleep(20 * time.Millisecond)
			now = state{}
			if err := ask("GET", partition, nil, &now); err != nil {
				return err
			}
		}
		if err := send(ctx, cl, "lost"); err != nil {
			return err
		}
		for _, path := range []string{
			fmt.Sprintf("/brokers/%d/kill", leader),
			fmt.Sprintf("/brokers/%d/restart", follower),
			fmt.Sprintf("%s/wait?leader_is_not=%d", partition, leader),
		} {
			if err := ask("POST", path, nil, nil); err != nil {
				return err
			}
		}
		if err := expectStored(topic, 1); err != nil {
			return err
		}
		if err := publish(ctx, run, topic); err != nil { // the first producer has numbers of a lost record
			return err
		}
		return ask("POST", fmt.Sprintf("/brokers/%d/restart", leader), nil, nil)
	})
	if err != nil {
		return err
	}
	return expectStored(topic, 2)
}

// expiredToken shows one token until the time jumps, and then another one. The broker ends the connection of
// the first, and the client connects again.
func expiredToken(ctx context.Context, run *harness.Run) error {
	var isFirstOver atomic.Bool
	token := func(context.Context) (oauth.Auth, error) {
		if isFirstOver.Load() {
			return oauth.Auth{Token: os.Getenv("SECOND_TOKEN")}, nil
		}
		return oauth.Auth{Token: os.Getenv("FIRST_TOKEN")}, nil
	}
	_, topic, err := with(run, "token", nil, func(topic string) error {
		cl, err := kgo.NewClient(
			kgo.SeedBrokers(run.Bootstrap), kgo.DefaultProduceTopic(topic), kgo.SASL(oauth.Oauth(token)),
		)
		if err != nil {
			return err
		}
		defer cl.Close()
		if err := send(ctx, cl, "one"); err != nil {
			return err
		}
		if err := ask("POST", "/time", map[string]string{"advance": "1h"}, nil); err != nil {
			return err
		}
		isFirstOver.Store(true)
		return send(ctx, cl, "two")
	})
	if err != nil {
		return err
	}
	return expectStored(topic, 2)
}

func fencedMember(ctx context.Context, run *harness.Run) error {
	return memberLoses(ctx, run, "fenced", func(topic string) error {
		return ask("DELETE", "/groups/"+topic+"/members", nil, nil)
	})
}

func clockJump(ctx context.Context, run *harness.Run) error {
	return memberLoses(ctx, run, "jump", func(string) error {
		return ask("POST", "/time", map[string]string{"advance": "3m"}, nil)
	})
}

// memberLoses reads a record, loses its place in the group before the commit, and reads the record again.
func memberLoses(ctx context.Context, run *harness.Run, name string, lose func(topic string) error) error {
	_, _, err := with(run, name, nil, func(topic string) error {
		if err := publish(ctx, run, topic); err != nil {
			return err
		}
		cl, err := kgo.NewClient(
			kgo.SeedBrokers(strings.Split(run.Bootstrap, ",")...), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
			kgo.HeartbeatInterval(100*time.Millisecond),
		)
		if err != nil {
			return err
		}
		defer cl.Close()
		if fetched := cl.PollFetches(ctx); fetched.Err() != nil {
			return fetched.Err()
		}
		if err := lose(topic); err != nil {
			return err
		}
		var lost *kgo.ErrGroupSession
		for { // the client reports that it has lost its place, and joins again for the same record
			again := cl.PollFetches(ctx)
			if err := again.Err(); err != nil && !errors.As(err, &lost) {
				return err
			}
			if again.NumRecords() > 0 {
				if lost == nil {
					return errors.New("the client read on without a report that its session was over")
				}
				return harness.Expect("records", again.NumRecords(), 1)
			}
		}
	})
	return err
}

func main() {
	harness.Main("franz-go", "github.com/twmb/franz-go", map[string]harness.Feature{
		"lost-response":  onceStored("lost", fault{"api": "Produce", "drop": "after", "times": 1}, 1),
		"half-response":  onceStored("half", fault{"api": "Produce", "drop": "during", "times": 1}, 1),
		"moved-leader":   onceStored("moved", fault{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, 2),
		"slow-broker":    slowBroker,
		"zombie":         zombie,
		"fenced-member":  fencedMember,
		"clock-jump":     clockJump,
		"restart":        restart,
		"poison-record":  poisonRecord,
		"full-disk":      fullDisk,
		"unclean-leader": uncleanLeader,
		"expired-token":  expiredToken,
	})
}
