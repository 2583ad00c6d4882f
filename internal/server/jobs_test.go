package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestSubmitAndGet(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(ann)
	spec := job("first")
	spec.Command, spec.Args, spec.Comment, spec.Nice = "/home/ann/x.sh", []string{"a", "b c"}, "hello", 5
	id := w.submit(c, spec)
	got, err := c.Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: fmt.Sprint(id)})
	must(t, err)
	j := got.GetJobs()[0]
	if j.GetName() != "first" || j.GetState() != greylagv1.JobState_JOB_STATE_PENDING || j.GetUser() != "ann" || j.GetUid() != 1001 ||
		j.GetPartition() != "main" || j.GetQos() != "standard" || j.GetCommand() != spec.Command || !slices.Equal(j.GetArgs(), spec.Args) || j.GetNice() != 5 {
		t.Errorf("got %v", j)
	}
	if got.GetAsOf().GetIndex() < j.GetVersion() || got.GetAsOf().GetStale() {
		t.Errorf("as of %v, the job is of %d", got.GetAsOf(), j.GetVersion())
	}
	text, err := c.Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: fmt.Sprint(id)})
	must(t, err)
	if string(text.GetScript()) != script || !slices.Equal(text.GetEnvironment(), spec.GetEnvironment()) {
		t.Errorf("script %q, environment %q", text.GetScript(), text.GetEnvironment())
	}
}

// TestTooLittleMemory checks that a job with too little memory to start a task is refused at once.
func TestTooLittleMemory(t *testing.T) {
	c := newWorld(t, options{}).as(ann)
	for what, x := range map[string]struct {
		change  func(*greylagv1.Request)
		refused bool
	}{
		"node": {func(r *greylagv1.Request) { r.MemPerNode = 1 << 20 }, true},
		"CPUs": {func(r *greylagv1.Request) { r.MemPerCpu, r.CpusPerTask = 1<<20, 4 }, true},
		"more": {func(r *greylagv1.Request) { r.MemPerCpu, r.CpusPerTask = 2<<20, 4 }, false},
		"none": {func(*greylagv1.Request) {}, false},
	} {
		spec := job(what)
		spec.Request = &greylagv1.Request{Nodes: 1, CpusPerTask: 1}
		x.change(spec.Request)
		_, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
		if x.refused != (connect.CodeOf(err) == connect.CodeInvalidArgument && strings.Contains(err.Error(), "too little to start a task")) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSubmitRepeatedRequestID(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(ann)
	request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{job("a"), job("b")}}
	first, err := c.Jobs().SubmitJobs(t.Context(), request)
	must(t, err)
	again, err := c.Jobs().SubmitJobs(t.Context(), request)
	must(t, err)
	if !proto.Equal(first, again) {
		t.Errorf("first %v, then %v", first, again)
	}
	// Another user's request with that ID is another request.
	other, err := w.as(bob).Jobs().SubmitJobs(t.Context(), request)
	must(t, err)
	if other.GetJobs()[0].GetId() == first.GetJobs()[0].GetId() {
		t.Error("two users share a request id")
	}
	request.Jobs[1].Name = "c"
	_, err = c.Jobs().SubmitJobs(t.Context(), request)
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Code() != connect.CodeInvalidArgument || refused.Meta().Get("Greylag-Code") != "mismatch" {
		t.Errorf("the same id for another request: %v", err)
	}
}

func TestSubmitRefusals(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(ann)
	big := strings.Repeat("x", 5<<20)
	for _, x := range []struct {
		what string
		with func(*greylagv1.JobSpec)
		want string
		hint string
	}{
		{"no script", func(s *greylagv1.JobSpec) { s.Script = nil }, "the script is empty", "#!"},
		{"no interpreter", func(s *greylagv1.JobSpec) { s.Script = []byte("true\n") }, "does not begin with #!", "#!/bin/bash"},
		{"binary", func(s *greylagv1.JobSpec) { s.Script = []byte("#!\x00") }, "NUL byte at offset 2", "starts the program"},
		{"too big", func(s *greylagv1.JobSpec) { s.Script = []byte("#!/bin/sh\n" + big) }, "at most 4194304 are taken", "files"},
		{"dos", func(s *greylagv1.JobSpec) { s.Script = []byte("#!/bin/sh\r\n") }, "DOS line ends", "sed"},
		{"environment", func(s *greylagv1.JobSpec) { s.Environment = []string{"A=" + big[:2<<20]} }, "environment has", "--export"},
		{"nameless variable", func(s *greylagv1.JobSpec) { s.Environment = []string{"=x"} }, "entry 1 is not NAME=VALUE", ""},
		{"control character", func(s *greylagv1.JobSpec) { s.Name = "a\x1b[2J" }, "control character", ""},
		{"array", func(s *greylagv1.JobSpec) { s.Array = "3-1" }, `"3-1" is not an index or a range`, "0-15%4"},
		{"huge array", func(s *greylagv1.JobSpec) { s.Array = "0-2000000000" }, "100000", ""},
		{"partition", func(s *greylagv1.JobSpec) { s.Partition = "nowhere" }, "nowhere", ""},
		{"dependency", func(s *greylagv1.JobSpec) {
			s.Depends = []*greylagv1.Dependency{{Kind: 99, Job: "1"}}
		}, "is not a DependencyKind", ""},
		{"unknown job", func(s *greylagv1.JobSpec) {
			s.Depends = []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: "999"}}
		}, "999", ""},
		{"image", func(s *greylagv1.JobSpec) { s.Image = "nonsense:::" }, "not an image reference", "registry/name:tag"},
		{"image outside", func(s *greylagv1.JobSpec) { s.Image = "../../etc" }, "not an image reference", "registry/name:tag"},
		{"squashfs", func(s *greylagv1.JobSpec) { s.Image = "/images/x.sqsh" }, "SquashFS images are not supported", ""},
		{"nice", func(s *greylagv1.JobSpec) { s.Nice = -5 }, "operator", ""},
		{"nodes", func(s *greylagv1.JobSpec) { s.Request = &greylagv1.Request{Nodes: -1} }, "nodes: -1", ""},
		{"node list", func(s *greylagv1.JobSpec) { s.Request = &greylagv1.Request{NodeList: []string{"n[1-"}} }, "node list", ""},
	} {
		spec := job(x.what)
		x.with(spec)
		_, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{spec}})
		if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(client.Hint(err), x.hint) || connect.CodeOf(err) == connect.CodeInternal {
			t.Errorf("%s: %v (hint %q), want %q (hint %q)", x.what, err, client.Hint(err), x.want, x.hint)
		}
	}
	list, err := c.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	if must(t, err); len(list.GetJobs()) > 0 {
		t.Errorf("stored %v", list.GetJobs())
	}
}

func TestLargeScripts(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(ann)
	spec := job("large")
	spec.Script = []byte("#!/bin/sh\n" + strings.Repeat("# a line of text that is long\n", 130_000))
	request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID()}
	for i := range 5 {
		one := proto.CloneOf(spec)
		if one.Script = spec.Script; i > 0 {
			one.Script = append([]byte("#!/bin/sh\n"), make([]byte, 200_000)...)
			for k := range one.Script[10:] {
				one.Script[10+k] = byte('a' + i)
			}
		}
		request.Jobs = append(request.Jobs, one)
	}
	answer, err := c.Jobs().SubmitJobs(t.Context(), request)
	must(t, err)
	for i, j := range answer.GetJobs() {
		got, err := c.Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: fmt.Sprint(j.GetId())})
		must(t, err)
		if string(got.GetScript()) != string(request.Jobs[i].Script) {
			t.Errorf("script %d came back with %d bytes", i, len(got.GetScript()))
		}
	}
}

func TestListFiltersAndPages(t *testing.T) {
	w := newWorld(t, options{})
	a, b := w.as(ann), w.as(bob)
	var request greylagv1.SubmitJobsRequest
	for i := range 25 {
		request.Jobs = append(request.Jobs, job(fmt.Sprintf("n%d", i%5)))
	}
	_, err := a.Jobs().SubmitJobs(t.Context(), &request)
	must(t, err)
	spec := job("theirs")
	spec.Array, spec.Hold = "0-9:3%2", true
	array := w.submit(b, spec)
	list := func(f *greylagv1.Filter) []string {
		var refs []string
		request := &greylagv1.ListJobsRequest{Filter: f, PageSize: 4}
		for {
			answer, err := a.Jobs().ListJobs(t.Context(), request)
			must(t, err)
			for _, j := range answer.GetJobs() {
				refs = append(refs, j.GetRef())
			}
			if request.PageToken = answer.GetNextPageToken(); request.PageToken == "" {
				return refs
			}
		}
	}
	for _, x := range []struct {
		f    *greylagv1.Filter
		want int
	}{
		{nil, 29}, {&greylagv1.Filter{Mine: true}, 25}, {&greylagv1.Filter{Users: []string{"bob"}}, 4},
		{&greylagv1.Filter{Names: []string{"n1", "n2"}}, 10}, {&greylagv1.Filter{Names: []string{"theirs"}}, 0}, // names of other users' jobs are not shown
		{&greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_RUNNING, greylagv1.JobState_JOB_STATE_RUNNING}}, 0}, {&greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}, 29},
		{&greylagv1.Filter{Jobs: []string{"1", "3", fmt.Sprint(array)}}, 6}, {&greylagv1.Filter{Jobs: []string{fmt.Sprintf("%d_3", array)}}, 1},
		{&greylagv1.Filter{Jobs: []string{"12345", fmt.Sprintf("%d_4", array)}}, 0}, {&greylagv1.Filter{Partitions: []string{"main"}, Qos: []string{"standard"}}, 29},
		{&greylagv1.Filter{Nodes: []string{"n[1-3]"}}, 0}, {&greylagv1.Filter{Accounts: []string{"none"}}, 0},
	} {
		if got := list(x.f); len(got) != x.want {
			t.Errorf("%v: %d jobs, want %d: %v", x.f, len(got), x.want, got)
		}
	}
	stream, err := a.Jobs().StreamJobs(t.Context(), &greylagv1.ListJobsRequest{Brief: true, PageSize: 7})
	must(t, err)
	n := 0
	for stream.Receive() {
		n += len(stream.Msg().GetJobs())
	}
	if must(t, stream.Err()); n != 29 {
		t.Errorf("%d jobs streamed", n)
	}
}

func TestCancelAndHistory(t *testing.T) {
	w := newWorld(t, options{})
	a, b := w.as(ann), w.as(bob)
	mine, theirs := w.submit(a, job("mine")), w.submit(b, job("theirs"))
	answer, err := a.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{
		RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(mine), fmt.Sprint(theirs), "999"}},
	})
	must(t, err)
	var codes []string
	for _, o := range answer.GetOutcomes() {
		codes = append(codes, wire.Word(o.GetCode())+" "+wire.Word(o.GetState()))
	}
	if want := []string{" CANCELLED", "permission_denied PENDING", "not_found "}; !slices.Equal(codes, want) {
		t.Errorf("outcomes %q, want %q", codes, want)
	}
	list, err := a.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{AllStates: true}})
	must(t, err)
	if got := list.GetJobs(); len(got) != 2 || got[0].GetId() != theirs || got[1].GetId() != mine || got[1].GetRequester() != "ann" {
		t.Errorf("history: %v", got)
	}
	if _, err := a.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("cancelling nothing in particular: %v", err)
	}
	// A state alone means the user's own jobs for a user, and all jobs for an operator.
	w.submit(a, job("again"))
	answer, err = a.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}})
	if must(t, err); len(answer.GetOutcomes()) != 1 || answer.GetOutcomes()[0].GetError() != "" {
		t.Errorf("own pending jobs: %v", answer)
	}
	answer, err = w.as(olga).Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}})
	if must(t, err); len(answer.GetOutcomes()) != 1 || answer.GetOutcomes()[0].GetId() != theirs {
		t.Errorf("all pending jobs: %v", answer)
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	c := w.as(ann, w.follower())
	spec := job("watched")
	spec.Array = "1-3"
	id := w.submit(c, spec)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	states := map[string]string{}
	err := c.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}}, UntilEnded: true}, func(m *greylagv1.WatchJobsResponse) error {
		for _, j := range m.GetJobs() {
			if !strings.HasSuffix(states[j.GetRef()], wire.Word(j.GetState())) { // the reason may have changed
				states[j.GetRef()] += " " + wire.Word(j.GetState())
			}
		}
		if m.GetCaughtUp() && len(states) == 3 && !strings.Contains(fmt.Sprint(states), "CANCELLED") {
			_, err := c.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}}})
			return err
		}
		return nil
	})
	must(t, err)
	for ref, got := range states {
		if got != " PENDING CANCELLED" {
			t.Errorf("%s was seen as%s", ref, got)
		}
	}
	// One that has ended is sent once, with its outcome.
	n := 0
	must(t, c.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}}, UntilEnded: true}, func(m *greylagv1.WatchJobsResponse) error {
		n += len(m.GetJobs())
		return nil
	}))
	if n != 3 {
		t.Errorf("%d jobs sent after the end", n)
	}
	err = c.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{"777"}}}, func(*greylagv1.WatchJobsResponse) error { return io.EOF })
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("watching no job: %v", err)
	}
}

func TestOthersJobsAreSummaries(t *testing.T) {
	w := newWorld(t, options{})
	spec := job("secret plan")
	spec.Comment, spec.Command, spec.Args = "secret", "secret", []string{"secret"}
	spec.Output, spec.WorkDir = "/secret/%j", "/secret"
	id := fmt.Sprint(w.submit(w.as(ann), spec))
	got, err := w.as(bob).Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: id})
	must(t, err)
	if text := got.String(); strings.Contains(text, "secret") || got.GetJobs()[0].GetUser() != "ann" {
		t.Errorf("bob sees %s", text)
	}
	if _, err := w.as(bob).Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: id}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("bob reads the script: %v", err)
	}
	if _, err := w.as(olga).Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: id}); err != nil {
		t.Errorf("an operator does not: %v", err)
	}
}

func TestPrivateJobsDoNotExistForOthers(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Private = true }})
	id := fmt.Sprint(w.submit(w.as(ann), job("hidden")))
	b := w.as(bob).Jobs()
	filter := &greylagv1.Filter{Jobs: []string{id}}
	_, err := b.GetJob(t.Context(), &greylagv1.GetJobRequest{Job: id})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("get: %v", err)
	}
	if _, err = b.GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: id}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("script: %v", err)
	}
	cancelled, err := b.CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{Filter: filter})
	if must(t, err); cancelled.GetOutcomes()[0].GetCode() != greylagv1.ErrorCode_ERROR_CODE_NOT_FOUND || cancelled.GetOutcomes()[0].GetState() != greylagv1.JobState_JOB_STATE_UNSPECIFIED {
		t.Errorf("cancel: %v", cancelled)
	}
	list, err := b.ListJobs(t.Context(), &greylagv1.ListJobsRequest{Filter: filter})
	if must(t, err); len(list.GetJobs()) != 0 {
		t.Errorf("list: %v", list)
	}
}
