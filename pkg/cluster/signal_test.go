package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestLead checks that no signal is sent at the start of a job.
func TestLead(t *testing.T) {
	for _, x := range []struct{ before, limit, want time.Duration }{
		{time.Minute, 0, time.Minute},
		{time.Minute, time.Hour, time.Minute},
		{55 * time.Second, time.Minute, 55 * time.Second},
		{time.Minute, time.Minute, 30 * time.Second},
		{time.Hour, time.Minute, 30 * time.Second},
		{DefaultCheckpointLead, 3 * time.Minute, 90 * time.Second},
		{DefaultCheckpointLead, time.Hour, DefaultCheckpointLead},
	} {
		if got := (WarnSignal{Before: x.before}).Lead(x.limit); got != x.want {
			t.Errorf("%s before the end of %s: got %s, want %s", x.before, x.limit, got, x.want)
		}
	}
}

// TestSignalNames checks that each name is that of its number.
func TestSignalNames(t *testing.T) {
	for n := int32(1); n <= 31; n++ {
		if got, known := SignalNumber("SIG" + SignalName(n)); !known || got != n {
			t.Errorf("signal %d: name %q is that of signal %d", n, SignalName(n), got)
		}
	}
	if got := SignalName(34) + SignalName(0) + SignalName(10); got != "signal 34signal 0USR1" {
		t.Errorf("names %q", got)
	}
}

// TestCheckpointDirInS3 checks which places in S3 are accepted, and that a pattern keeps both slashes.
func TestCheckpointDirInS3(t *testing.T) {
	for dir, want := range map[string]bool{
		"s3://lab/runs/7": true, "s3://lab.data-1/x": true, "s3://lab": false, "s3://lab/": false, "s3://l/x": false, "s3://Lab/x": false,
		"s3://lab/x/": false, "s3://lab/../x": false, "s3://lab//x": false, "s3://": false, "s3:/lab/x": false, "s3://lab/x\ny": false,
	} {
		if err := CheckCheckpointDir(dir); (err == nil) != want {
			t.Errorf("%s: %v, accepted: want %t", dir, err, want)
		}
	}
	if got := (PathValues{Job: 7, Name: "a/b"}).Expand("s3://lab/%x/%j"); got != "s3://lab/a_b/7" {
		t.Errorf("the pattern became %s", got)
	}
	p := Policy{CheckpointStores: []CheckpointStore{{Path: "s3://lab", Slots: 1}, {Path: "/", Slots: 1}}}
	if s, ok := p.CheckpointStore("s3://lab/runs/7"); !ok || s.Path != "s3://lab" {
		t.Errorf("the store is %+v, %t", s, ok)
	}
	if s, ok := p.CheckpointStore("s3://labs/runs/7"); ok {
		t.Errorf("another bucket is in store %+v", s)
	}
}

// TestCheckpointDirOfTheKernel checks that no job keeps checkpoints where no file can be.
func TestCheckpointDirOfTheKernel(t *testing.T) {
	for dir, refused := range map[string]bool{"/proc/1/c": true, "/sys": true, "/dev/c": true, "/dev/shm/c": false, "/device/c": false} {
		var faults []error
		s := JobSpec{CheckpointDir: dir}
		s.checkCheckpointDir(func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) })
		if (len(faults) > 0) != refused {
			t.Errorf("%s: %v, refused: want %t", dir, errors.Join(faults...), refused)
		}
	}
}
