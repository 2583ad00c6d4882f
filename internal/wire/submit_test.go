package wire

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// wholeJob returns a job with every field but the array.
func wholeJob() *greylagv1.JobSpec {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return &greylagv1.JobSpec{
		Name: "train", Account: "lab", Partition: "gpu", Qos: "low", TimeLimit: durationpb.New(time.Hour), Script: []byte("#!/bin/sh\n"),
		Request:     &greylagv1.Request{Nodes: 2, GpusPerNode: 4, TasksPerNode: 4, CpusPerTask: 2, MemPerNode: 1 << 30, Features: []string{"ib"}, Regions: []string{"eu"}},
		Environment: []string{"A=b", "C="}, Args: []string{"x"}, WorkDir: "/home/ann", Input: "/dev/null", Output: "/home/ann/out", Error: "/home/ann/err",
		Append: true, Image: "oci-archive:/a.tar", NoRequeue: true, Nice: 5, Begin: timestamppb.New(at), Deadline: timestamppb.New(at.Add(3 * time.Hour)),
		Depends: []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: "7"}},
		Comment: "c", SubmitHost: "login1", Hold: true, Signal: 10, SignalBefore: durationpb.New(time.Minute), SignalBatchOnly: true, EveryNode: true,
		OtherPartitions: []string{"spot"}, Reservation: "course", Command: "/home/ann/train.sh", Wckey: "vision",
		MailTypes: []greylagv1.MailType{greylagv1.MailType_MAIL_TYPE_END}, MailUser: "ann", Secrets: []string{"token"},
		Mounts:        []*greylagv1.Mount{{Source: "/a", Target: "/b", ReadOnly: true}},
		CheckpointDir: "/ckpt/%j", FromScratch: true, Retry: &greylagv1.Retry{Limit: 3, AnyExit: true, ExitStatuses: []int32{75}, OutOfMemory: true},
		CheckpointSignal: &greylagv1.CheckpointSignal{Number: 12, Before: durationpb.New(time.Minute), BatchOnly: true, Every: durationpb.New(time.Hour)}, RequeueAtLimit: true,
		Elastic: &greylagv1.Elastic{Step: 1, Signal: 12, BatchOnly: true},
		Burst:   &greylagv1.Burst{Mode: greylagv1.BurstMode_BURST_MODE_ALLOW, MaxCost: 12_500_000, Regions: []string{"eu-west-1"}, Market: greylagv1.Market_MARKET_SPOT},
		StageIn: []*greylagv1.Staging{{Url: "s3://bucket/set/", Path: "data"}}, StageOut: []*greylagv1.Staging{{Url: "rsync://host/out/log", Path: "log"}},
	}
}

func TestWriteSubmissionIsTheReverse(t *testing.T) {
	whole := wholeJob()
	for i := range whole.ProtoReflect().Descriptor().Fields().Len() {
		if f := whole.ProtoReflect().Descriptor().Fields().Get(i); f.Name() != "array" && !whole.ProtoReflect().Has(f) {
			t.Errorf("the job of the test has no %s: add it, also to WriteSubmission", f.Name())
		}
	}
	requeued, once := proto.CloneOf(whole), proto.CloneOf(whole) // each excludes the other
	requeued.NoRequeue, once.RequeueAtLimit = false, false
	elastic := &greylagv1.JobSpec{Script: []byte("#!/bin/sh\n"), Request: &greylagv1.Request{Nodes: 1, MaxNodes: 3}, Elastic: whole.Elastic}
	requeued.Elastic, once.Elastic = nil, nil // they have one number of nodes
	for _, p := range []*greylagv1.JobSpec{requeued, once, elastic, {Script: []byte("#!/bin/sh\n")}, {Script: []byte("#!/bin/sh\n"), TimeLimit: durationpb.New(0)}} {
		want, err := ReadSubmission(p, cluster.Identity{User: "ann", UID: 1001, GID: 1001})
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadSubmission(WriteSubmission(&want), want.Spec.Owner)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
}
