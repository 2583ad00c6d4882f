package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestForecast checks that a forecast says when and where a job would start, that a submitted job
// then starts or is planned there, that nothing is submitted, and that invalid jobs are refused.
func TestForecast(t *testing.T) {
	w := newWorld(t, options{})
	_, second := queueOfTwo(w)
	c := w.as(ann).Jobs()
	spec := job("work")
	spec.Script, spec.TimeLimit = []byte("#!/bin/sh\n"), durationpb.New(time.Hour)
	spec.Request = &greylagv1.Request{GpusPerNode: 2}
	f, err := c.ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: spec})
	must(t, err)
	if f.GetNow() || f.GetPartition() != "main" || len(f.GetNodes()) != 1 || f.GetNodes()[0] != "n1" || f.GetReason() != greylagv1.Reason_REASON_RESOURCES {
		t.Errorf("behind two: %v", f)
	}
	id := cluster.JobID(w.submit(w.as(ann), spec)).String()
	if first, _ := cluster.ParseJobRef(second); id != (first.ID + 1).String() {
		t.Errorf("the next job has the id %s after %s", id, second)
	}
	w.until("it is planned", func() bool {
		answer, err := c.GetJob(t.Context(), &greylagv1.GetJobRequest{Job: id})
		must(t, err)
		p := answer.GetJobs()[0].GetPlanned()
		return p != nil && p.AsTime().Sub(f.GetStart().AsTime()).Abs() < time.Minute
	})
	spec.Request = &greylagv1.Request{CpusPerTask: 1, MemPerNode: 64 << 20}
	f, err = c.ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: spec})
	if must(t, err); !f.GetNow() || f.GetReason() != greylagv1.Reason_REASON_UNSPECIFIED || f.GetStart() == nil {
		t.Errorf("of a job that fits with it: %v", f)
	}
	begin := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
	spec.Begin = timestamppb.New(begin)
	f, err = c.ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: spec})
	if must(t, err); !f.GetStart().AsTime().Equal(begin) || strings.Join(f.GetNodes(), " ") != "n1" || f.GetReason() != greylagv1.Reason_REASON_BEGIN_TIME || f.GetDetail() != "it will not start before 2099-01-02T03:04:05Z" {
		t.Errorf("of a job that is not to start yet: %v", f)
	}
	soon := time.Now().Add(time.Minute)
	spec.Begin, spec.Request = timestamppb.New(soon), &greylagv1.Request{GpusPerNode: 2}
	f, err = c.ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: spec})
	if must(t, err); !f.GetStart().AsTime().After(soon.Add(20 * time.Minute)) {
		t.Errorf("of a job whose nodes are taken when it may start: %v", f)
	}
}

// TestUnknownExcludedNode checks that an excluded node that does not exist causes a warning.
func TestUnknownExcludedNode(t *testing.T) {
	w := newWorld(t, options{})
	queueOfTwo(w)
	c := w.as(ann).Jobs()
	spec := job("work")
	spec.Request = &greylagv1.Request{Exclude: []string{"n99"}}
	want := []string{`--exclude: unknown node "n99"; gctl nodes lists the nodes`}
	f, err := c.ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: spec})
	if must(t, err); !slices.Equal(f.GetWarnings(), want) {
		t.Errorf("warnings of the forecast: %q", f.GetWarnings())
	}
	answer, err := c.SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
	if must(t, err); !slices.Equal(answer.GetWarnings(), want) {
		t.Errorf("warnings of the submission: %q", answer.GetWarnings())
	}
}

func TestForecastRefusals(t *testing.T) {
	w := newWorld(t, options{})
	newNode(w, "n1").next()
	c := w.as(ann).Jobs()
	large := job("large")
	large.Request = &greylagv1.Request{GpusPerNode: 99}
	bad := proto.CloneOf(large)
	bad.Name = "a\x00b"
	for name, spec := range map[string]*greylagv1.JobSpec{"none": nil, "too large": large, "malformed": bad} {
		_, asked := c.ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: spec})
		if asked == nil {
			t.Errorf("%s: foreseen", name)
			continue
		}
		_, submitted := c.SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{spec}})
		if connect.CodeOf(asked) != connect.CodeOf(submitted) {
			t.Errorf("%s: %v to foresee, %v to submit", name, asked, submitted)
		}
	}
}
