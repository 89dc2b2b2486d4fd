// Package harness runs features one after another and prints one line of JSON for each.
//
// Every program of this folder is called as
//
//	program <bootstrap> <topic prefix> <feature>=<timeout in ms> ...
//
// and answers first {"client":…,"version":…}, then {"feature":…,"result":…,"note":…} with the
// result ok, failed, or absent where the client itself has no such thing.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// ErrAbsent says that the client has no such feature, whatever the broker.
var ErrAbsent = errors.New("the client has no such feature")

// Run is where a program works: one broker, and topics that no other run uses.
type Run struct {
	Bootstrap string
	prefix    string
}

// Topic is a name of this run's own.
func (r *Run) Topic(name string) string { return r.prefix + "-" + name }

// Feature does one thing and checks what came of it.
type Feature func(ctx context.Context, run *Run) error

type line struct {
	Feature string `json:"feature"`
	Result  string `json:"result"`
	Note    string `json:"note,omitempty"`
}

// Main tries the features named on the command line.
func Main(client, module string, features map[string]Feature) {
	run := &Run{Bootstrap: os.Args[1], prefix: os.Args[2]}
	emit(map[string]string{"client": client, "version": moduleVersion(module)})
	for _, argument := range os.Args[3:] {
		name, millis, _ := strings.Cut(argument, "=")
		timeoutMs, err := strconv.Atoi(millis)
		if err != nil {
			panic(err)
		}
		emit(try(name, features[name], run, time.Duration(timeoutMs)*time.Millisecond))
	}
}

func try(name string, feature Feature, run *Run, timeout time.Duration) line {
	if feature == nil {
		return line{name, "absent", ""}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if crash := recover(); crash != nil {
				done <- fmt.Errorf("panic: %v", crash)
			}
		}()
		done <- feature(ctx, run)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(timeout + time.Second):
		err = fmt.Errorf("no end after %v", timeout)
	}
	switch {
	case err == nil:
		return line{name, "ok", ""}
	case errors.Is(err, ErrAbsent):
		return line{name, "absent", ""}
	default:
		return line{name, "failed", err.Error()}
	}
}

func emit(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		panic(err)
	}
}

func moduleVersion(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return "unknown"
}

// Expect compares what came with what was meant.
func Expect(what string, got, want any) error {
	if left, right := fmt.Sprint(got), fmt.Sprint(want); left != right {
		return fmt.Errorf("%s: got %.300s, expected %.300s", what, left, right)
	}
	return nil
}

// Until asks again until the answer is yes: for what a broker answers before it has taken effect.
func Until(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		ok, err := holds()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: never (last error: %v)", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Values are count texts that compress well.
func Values(stem string, count int) []string {
	values := make([]string, count)
	for i := range values {
		values[i] = strings.Repeat(fmt.Sprintf("%s %d ", stem, i), 10)
	}
	return values
}
