// A program with transactions, as python_program.py tells: `commands SETTINGS` or `process SETTINGS`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const cannotGoOn = 3

type settings struct {
	Bootstrap            string `json:"bootstrap"`
	TransactionalID      string `json:"transactional_id"`
	TransactionTimeoutMs int    `json:"transaction_timeout_ms"`
	Input                string `json:"input"`
	Output               string `json:"output"`
	Group                string `json:"group"`
	SessionTimeoutMs     int    `json:"session_timeout_ms"`
}

func (s settings) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(s.Bootstrap, ",")...),
		kgo.TransactionalID(s.TransactionalID),
		kgo.TransactionTimeout(time.Duration(s.TransactionTimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

func act(ctx context.Context, client *kgo.Client, words []string) error {
	switch words[0] {
	case "init":
		_, _, err := client.ProducerID(ctx)
		return err
	case "begin":
		return client.BeginTransaction()
	case "send":
		partition, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		record := &kgo.Record{Topic: words[1], Partition: int32(partition), Value: []byte(words[3])}
		return client.ProduceSync(ctx, record).FirstErr()
	case "commit":
		return client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return client.EndTransaction(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("no command is called %s", words[0])
}

func commands(s settings) error {
	client, err := kgo.NewClient(s.options()...)
	if err != nil {
		return err
	}
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := act(context.Background(), client, strings.SplitN(lines.Text(), " ", 4)); err != nil {
			fmt.Println("failed", name(err))
		} else {
			fmt.Println("done")
		}
	}
	return lines.Err()
}

func process(s settings) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(append(s.options(),
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeTopics(s.Input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(time.Duration(s.SessionTimeoutMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(s.SessionTimeoutMs/10)*time.Millisecond),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	for ctx.Err() == nil {
		fetches := session.PollFetches(ctx)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var failed error
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(context.Background(),
				&kgo.Record{Topic: s.Output, Partition: record.Partition, Value: record.Value}, promise.Promise())
		})
		failed = promise.Err()
		committed, err := session.End(context.Background(), failed == nil)
		if err != nil {
			return err
		}
		if committed {
			fmt.Println("committed", fetches.NumRecords())
		}
	}
	return nil
}

func main() {
	var s settings
	if err := json.Unmarshal([]byte(os.Args[2]), &s); err != nil {
		panic(err)
	}
	run := process
	if os.Args[1] == "commands" {
		run = commands
	}
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(cannotGoOn)
	}
}
