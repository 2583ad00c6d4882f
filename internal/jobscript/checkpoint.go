package jobscript

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/greylag/greylag/pkg/cluster"
)

// checkAsking refuses a checkpoint signal that no program can handle.
func checkAsking(number int32) error {
	if s := syscall.Signal(number); s == syscall.SIGKILL || s == syscall.SIGSTOP {
		return advise(fmt.Sprintf("no program can handle %s: it would not save its work", cluster.SignalName(number)), "use a signal that the program handles, such as USR1")
	}
	return nil
}

// checkFolder refuses a folder that was meant as a URI, and an invalid S3 URI.
func checkFolder(folder string) error {
	scheme, _, isURI := strings.Cut(folder, "://")
	switch {
	case cluster.InS3(folder):
		if err := cluster.CheckCheckpointDir(folder); err != nil {
			return advise(err.Error(), "write s3://BUCKET/PREFIX: a bucket of 3 to 63 characters a-z 0-9 . -, and a prefix")
		}
	case strings.HasPrefix(strings.ToLower(folder), "s3:"):
		return advise(fmt.Sprintf("not an S3 URI: %q", folder), "write s3://BUCKET/PREFIX, or ./s3:... for a folder of that name")
	case isURI && !strings.ContainsAny(scheme, "/%"):
		return advise(fmt.Sprintf("unknown scheme %q in %q", scheme, folder), "write the path of a directory on a shared file system, or s3://BUCKET/PREFIX")
	}
	return nil
}

// finishSignals checks the signals before the time limit against it. A time that the policy chooses is not known
// here: see cluster.WarnSignal.
func (r *resolver) finishSignals(o *Options) {
	if syscall.Signal(o.CheckpointSignal.Number) == syscall.SIGTERM {
		r.warnings = append(r.warnings, "--checkpoint-signal=TERM: the job gets TERM also when it is ended, and cannot distinguish the two; USR1 has no other use")
	}
	if o.TimeLimit == nil || *o.TimeLimit <= 0 {
		return
	}
	limit := *o.TimeLimit
	text := cluster.FormatLimit(limit)
	if w := o.CheckpointSignal; w.Number != 0 && w.Before >= limit && w.Before != cluster.DefaultCheckpointLead {
		r.fault("--checkpoint-signal", fmt.Sprintf("%s before the end is not within the time limit %s", cluster.FormatElapsed(w.Before), text),
			fmt.Sprintf("write at most @%d, or request more with --time", int(limit.Seconds())/2))
	}
	if w := o.Signal; w.Number != 0 && w.Before >= limit {
		r.warnings = append(r.warnings, fmt.Sprintf("--signal: %s before the end is not within the time limit %s: the signal is sent %s after the start",
			cluster.FormatElapsed(w.Before), text, cluster.FormatElapsed(limit-w.Lead(limit))))
	}
	if o.CheckpointEvery >= limit {
		r.warnings = append(r.warnings, fmt.Sprintf("--checkpoint-every: %s is not within the time limit %s: it sends no signal", cluster.FormatElapsed(o.CheckpointEvery), text))
	}
}

// warnCheckpoint warns of options without --checkpoint, and of a folder that only one node sees.
func (r *resolver) warnCheckpoint(o *Options) {
	if o.Checkpoint == "" {
		if o.CheckpointSignal.Number != 0 {
			r.warnings = append(r.warnings, "--checkpoint-signal without --checkpoint: the program gets the signal, but gctl checkpoint begin has no folder")
		}
		for _, long := range []string{"requeue-at-limit", "restart"} {
			if r.given(long) {
				r.warnings = append(r.warnings, fmt.Sprintf("--%s has no effect without --checkpoint, unless the job commits directories of its own", long))
			}
		}
		return
	}
	for _, local := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if dir := path.Clean(o.Checkpoint); dir == local || strings.HasPrefix(dir, local+"/") {
			r.warnings = append(r.warnings, fmt.Sprintf("--checkpoint: %s is local to a node: an attempt on another node cannot resume from it", local))
		}
	}
}

// given reports whether an option is given.
func (r *resolver) given(long string) bool {
	return slices.ContainsFunc(r.asks, func(a ask) bool { return a.row.Long == long })
}
