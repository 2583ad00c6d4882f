package jobscript

import (
	"fmt"
	"strconv"
	"time"

	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// restartRows are the options about what happens after a failure.
func restartRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "checkpoint", Value: "FOLDER", Help: "where the job keeps its checkpoints, on a file system that all nodes share, or s3://BUCKET/PREFIX; %j job, %A array, %a index, %x name, %u user"},
			set: func(o *Options, v string, _ time.Time) error {
				o.Checkpoint = v
				return checkFolder(v)
			}},
		{Option: getopt.Option{Long: "checkpoint-signal", Value: "[B:]SIG[@SEC]", Help: "ask the job for a checkpoint with SIG, SEC seconds before the time limit [120, at most half of it] and before a preemption; B: batch shell only"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				if o.CheckpointSignal, err = parseWarn(v, "B", cluster.DefaultCheckpointLead); err == nil {
					err = checkAsking(o.CheckpointSignal.Number)
				}
				return err
			}},
		{Option: getopt.Option{Long: "checkpoint-every", Value: "TIME", Help: "also send the checkpoint signal every TIME after the last checkpoint: 30m, or as in --time"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.CheckpointEvery, err = parseEvery(v)
				return err
			}},
		{Option: getopt.Option{Long: "requeue-at-limit", Help: "requeue at the time limit if this attempt has a checkpoint of a later step than all before"},
			set: turn(func(o *Options) { o.RequeueAtLimit = true })},
		{Option: getopt.Option{Long: "restart", Value: "MODE", Help: "when all checkpoints are damaged: hold the job, or start it from scratch [hold]"},
			set: func(o *Options, v string, _ time.Time) error {
				o.FromScratch = v == "scratch"
				if v != "scratch" && v != "hold" {
					return advise(fmt.Sprintf("unknown mode %q", v), "write hold or scratch")
				}
				return nil
			}},
		{Option: getopt.Option{Long: "retry", Value: "NUMBER", Help: "requeue the job after its own failure, at most NUMBER times without progress, such as a checkpoint of a later step [0, or the site's default]"},
			set: func(o *Options, v string, _ time.Time) error {
				n, err := strconv.ParseInt(v, 10, 32)
				if err != nil || n < 0 || n > cluster.MaxRetries {
					return advise(fmt.Sprintf("invalid number of retries %q", v), fmt.Sprintf("write a number from 0 to %d", cluster.MaxRetries))
				}
				limit := int32(n)
				o.retries = &limit
				return nil
			}},
		{Option: getopt.Option{Long: "retry-on", Value: "CAUSES", Help: "causes of --retry, separated by commas: exit (non-zero exit status or signal), exit:STATUS, oom (out of memory) [exit]"},
			set: func(o *Options, v string, _ time.Time) error {
				causes, err := cluster.ParseRetryCauses(v)
				if err != nil {
					return advise(err.Error(), "for example --retry=3 --retry-on=exit:75,oom")
				}
				o.retryOn = &causes
				return nil
			}},
	}...)
}

// parseEvery reads a time between checkpoints, such as 90s, 30m, 2h, or as --time does.
func parseEvery(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil {
		d, err = cluster.ParseLimit(word)
	}
	if err != nil {
		return 0, advise(fmt.Sprintf("not a time: %q", word), "write a duration such as 30m or 1h30m, or as in --time: minutes, h:m:s or d-h:m:s")
	}
	if err == nil && d < time.Second {
		err = advise(fmt.Sprintf("%q is less than a second", word), "write for example 30m")
	}
	return d, err
}

// finishRetry joins --retry and --retry-on, and checks the other options about what happens after an end.
func (r *resolver) finishRetry(o *Options) {
	if o.CheckpointEvery > 0 && o.CheckpointSignal.Number == 0 {
		r.fault("--checkpoint-every", "requires --checkpoint-signal", "add --checkpoint-signal=USR1, and handle the signal: without a handler it ends the program")
	}
	if o.RequeueAtLimit && o.NoRequeue {
		r.fault("--requeue-at-limit", "cannot be combined with --no-requeue", "drop one of the two")
	}
	r.finishSignals(o)
	r.warnCheckpoint(o)
	switch {
	case o.retries == nil && o.retryOn == nil:
		return
	case o.retries == nil:
		r.fault("--retry-on", "requires --retry", "add --retry=3")
		return
	}
	retry := cluster.Retry{AnyExit: true}
	if o.retryOn != nil {
		retry = *o.retryOn
	}
	retry.Limit = *o.retries
	if err := retry.Check(); err != nil {
		r.fault("--retry-on", err.Error(), "")
	}
	if retry.Limit > 0 && o.NoRequeue {
		r.fault("--retry", "--no-requeue excludes retries", "leave out one of them")
	}
	o.Retry = &retry
}
