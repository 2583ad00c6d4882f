package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestParseArray(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"5", "[{5 5 1}] 0"}, {"0-15", "[{0 15 1}] 0"}, {"0-15:4%2", "[{0 15 4}] 2"}, {"0,6,16-32", "[{0 0 1} {6 6 1} {16 32 1}] 0"},
		{"1-3%10", "[{1 3 1}] 10"}, {"", "bad"}, {"-", "bad"}, {"3-1", "bad"}, {"1-", "bad"}, {"1:2", "bad"}, {"1-5:0", "bad"},
		{"1%0", "bad"}, {"1%", "bad"}, {"1%2%3", "bad"}, {" 1", "bad"}, {"+1", "bad"}, {"1,,2", "bad"}, {"a", "bad"}, {"0x1", "bad"},
		{"99999999999", "bad"}, {"2147483647", "bad"}, {strings.Repeat("1,", 20_000) + "1", "bad"},
	} {
		ranges, limit, err := ParseArray(x.text)
		got := fmt.Sprint(ranges, limit)
		if err != nil {
			got = "bad"
			checkRefusal(t, x.text, err)
		}
		if got != x.want {
			t.Errorf("%.40q: %s, want %s", x.text, got, x.want)
		}
	}
}

func checkRefusal(t *testing.T, what string, err error) {
	t.Helper()
	var r *command.Refusal
	if !errors.As(err, &r) || r.Code != command.InvalidArgument || r.Message == "" || len(r.Message) > 4000 {
		t.Errorf("%.60q: %T %v", what, err, err)
	}
}

func FuzzParseArray(f *testing.F) {
	f.Add("0-15:4%2")
	f.Add("0,6,16-32")
	f.Fuzz(func(t *testing.T, text string) {
		ranges, limit, err := ParseArray(text)
		if err != nil {
			checkRefusal(t, text, err)
			return
		}
		again := make([]string, len(ranges))
		for i, r := range ranges {
			again[i] = fmt.Sprintf("%d-%d:%d", r.First, r.Last, r.Step)
		}
		line := strings.Join(again, ",")
		if limit > 0 {
			line += fmt.Sprintf("%%%d", limit)
		}
		r2, l2, err := ParseArray(line)
		if err != nil || l2 != limit || !reflect.DeepEqual(r2, ranges) {
			t.Fatalf("%q is %v%%%d, but %q is %v%%%d, %v", text, ranges, limit, line, r2, l2, err)
		}
	})
}

// FuzzSubmission feeds messages of any content. Accepted ones must survive the log's encoding, be
// valid, and come back to the user as requested.
func FuzzSubmission(f *testing.F) {
	for _, p := range []*greylagv1.JobSpec{
		{Script: []byte("#!/bin/sh\n"), Name: "a", Array: "1-3%2", Request: &greylagv1.Request{Nodes: 2, GpuTypes: []string{"H100"}, NodeList: []string{"n[1-3],x"}}},
		{Script: []byte("#!x"), Partition: "a", OtherPartitions: []string{"b"}, Reservation: "r", Request: &greylagv1.Request{
			GpusPerNode: 8, GpuMemory: 80 << 30, Connect: greylagv1.Connect_CONNECT_LEAF, Switches: 2, SwitchWait: durationpb.New(time.Minute),
			Licences: []*greylagv1.Licence{{Name: "matlab", Count: 2}},
		}},
		{Script: []byte("#!x"), Request: &greylagv1.Request{Gpus: 8, Connect: greylagv1.Connect_CONNECT_NVLINK}},
		{Script: []byte("#!x"), Request: &greylagv1.Request{Gpus: 8, Switches: 1, SwitchWait: &durationpb.Duration{Seconds: -1}}},
		{Script: []byte("#!x"), Environment: []string{"A=b", "C="}, Depends: []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: "1_2"}, {Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTER, Job: "3", Minutes: 10}, {Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_SINGLETON}}},
	} {
		data, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	owner := cluster.Identity{User: "ann", UID: 1, GID: 2}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &greylagv1.JobSpec{}
		if proto.Unmarshal(data, p) != nil {
			return
		}
		s, err := ReadSubmission(p, owner)
		if err != nil {
			checkRefusal(t, p.String(), err)
			return
		}
		c := &command.SubmitJobs{Jobs: []command.Submission{s.Submission}}
		again, err := command.Decode(command.Encode(c))
		if err != nil || !reflect.DeepEqual(command.Encode(again), command.Encode(c)) {
			t.Fatalf("the log cannot hold %+v: %v", s, err)
		}
		j := &cluster.Job{ID: 7, Index: cluster.NoIndex, Spec: &s.Spec, State: cluster.Pending}
		if err := s.Spec.Validate(); err != nil || s.Spec.Owner != owner {
			t.Fatalf("accepted %+v: %v", s.Spec, err)
		}
		shown := WriteJob(j)
		if _, err := proto.Marshal(shown); err != nil {
			t.Fatalf("cannot be sent: %v: %v", shown, err)
		}
		checkShown(t, p, shown, &s)
	})
}

// checkShown compares what a user reads with the request.
func checkShown(t *testing.T, p *greylagv1.JobSpec, shown *greylagv1.Job, s *Submission) {
	t.Helper()
	if shown.GetName() != p.GetName() || shown.GetWorkDir() != p.GetWorkDir() || shown.GetNice() != p.GetNice() || shown.GetCommand() != p.GetCommand() ||
		!reflect.DeepEqual(shown.GetArgs(), p.GetArgs()) || len(shown.GetDepends()) != len(p.GetDepends()) {
		t.Fatalf("asked %v, shown %v", p, shown)
	}
	r, err := ReadRequest(shown.GetRequest())
	if err != nil || !reflect.DeepEqual(r, s.Spec.Request) {
		t.Fatalf("request %+v was shown as %v and read %+v, %v", s.Spec.Request, shown.GetRequest(), r, err)
	}
	depends, err := readDependencies(shown.GetDepends())
	if err != nil || !reflect.DeepEqual(depends, s.Spec.Depends) {
		t.Fatalf("dependencies %+v were shown as %v", s.Spec.Depends, shown.GetDepends())
	}
	if got := Environment(s.Environment); len(got) != len(p.GetEnvironment()) {
		t.Fatalf("environment %q became %q", p.GetEnvironment(), got)
	}
}

// FuzzNode feeds messages as a node could send them.
func FuzzNode(f *testing.F) {
	add := func(p proto.Message) {
		data, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	add(&greylagv1.RegisterNodeRequest{BootId: "b", Cpus: 4, Gpus: []*greylagv1.GPU{{Uuid: "u"}}})
	add(&greylagv1.ReportTasksRequest{Epoch: 3, Seen: 9, Tasks: []*greylagv1.ReportedTask{{Job: 1, Attempt: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_ENDED, Cause: greylagv1.TaskCause_TASK_CAUSE_EXITED, ExitCode: 1}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		register := &greylagv1.RegisterNodeRequest{}
		if proto.Unmarshal(data, register) == nil {
			c, err := ReadRegistration(register, "n1", "10.0.0.1")
			if err != nil {
				checkRefusal(t, register.String(), err)
			} else {
				checkNode(t, c)
			}
		}
		report := &greylagv1.ReportTasksRequest{}
		if proto.Unmarshal(data, report) != nil {
			return
		}
		c, err := ReadReport(report, "n1")
		if err != nil {
			checkRefusal(t, report.String(), err)
			return
		}
		for i, task := range c.Tasks {
			if task.Task.Node != "n1" || greylagv1.TaskPhase(task.Task.Phase+1) != report.GetTasks()[i].GetPhase() {
				t.Fatalf("%v was read as %+v", report.GetTasks()[i], task)
			}
		}
		if _, err := command.Decode(command.Encode(c)); err != nil {
			t.Fatal(err)
		}
	})
}

func checkNode(t *testing.T, c *command.RegisterNode) {
	t.Helper()
	if c.Node.Name != "n1" || c.Node.Address != "10.0.0.1" || c.Node.Epoch != 0 || c.Node.Drain {
		t.Fatalf("a node chose %+v itself", c.Node)
	}
	shown := WriteNode(&c.Node, cluster.NodeUse{}, nil, 0)
	if _, err := proto.Marshal(shown); err != nil {
		t.Fatalf("cannot be sent: %v", err)
	}
	gpus, err := ReadGPUs(shown.GetGpus())
	if err != nil || !reflect.DeepEqual(gpus, c.Node.GPUs) {
		t.Fatalf("GPUs %+v were read back as %+v, %v", c.Node.GPUs, gpus, err)
	}
}

func TestBriefIsAPartOfTheWhole(t *testing.T) {
	spec := &cluster.JobSpec{
		Name: "a", Owner: cluster.Identity{User: "u"}, Account: "acc", Partition: "p", QOS: "q", TimeLimit: 90 * time.Minute, ArrayLimit: 2, ArraySize: 9,
		Request: cluster.Request{Nodes: 2, GPUsPerNode: 4, GPUTypes: []string{"h100"}, TasksPerNode: 1, CPUsPerTask: 2, MemPerNode: 5},
	}
	j := &cluster.Job{
		ID: 12, Array: 10, Index: 4, Spec: spec, State: cluster.Running, Reason: cluster.ReasonPriority, Submitted: 1e18, Started: 2e18, Planned: 3e18, Ended: 4e18 + 5,
		Alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1", GPUs: []int32{1}}, {Node: "n2"}}},
	}
	brief, whole := WriteBrief([]*cluster.Job{j, j}, false)[1], WriteJob(j)
	if brief.GetRef() != "10_4" || brief.GetArrayLimit() != 2 || brief.GetNodes()[1].GetNode() != "n2" {
		t.Errorf("brief: %v", brief)
	}
	whole.ProtoReflect().Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if brief.ProtoReflect().Has(d) && d.Name() != "request" && d.Name() != "nodes" && !v.Equal(brief.ProtoReflect().Get(d)) {
			t.Errorf("%s: brief %v, whole %v", d.Name(), brief.ProtoReflect().Get(d), v)
		}
		return true
	})
	if !whole.GetEnded().AsTime().Equal(j.Ended.Time()) || whole.GetTimeLimit().AsDuration() != spec.TimeLimit {
		t.Errorf("times: %v", whole)
	}
}

// queue is a listing as on a busy cluster.
func queue(n int) []*cluster.Job {
	jobs := make([]*cluster.Job, n)
	for i := range jobs {
		spec := &cluster.JobSpec{
			Name: "train", Owner: cluster.Identity{User: fmt.Sprint("user", i%7)}, Account: "lab", Partition: "main", QOS: "standard",
			TimeLimit: time.Hour, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, TasksPerNode: 1, CPUsPerTask: 1},
		}
		jobs[i] = &cluster.Job{ID: cluster.JobID(i + 1), Index: cluster.NoIndex, Spec: spec, State: cluster.Pending, Reason: cluster.ReasonPriority, Submitted: cluster.Instant(1e18 + i)}
		if i%5 == 4 {
			jobs[i].Array, jobs[i].Index, spec.ArrayLimit, spec.ArraySize = 5, int32(i), 3, 9
		}
		if i%9 == 8 {
			jobs[i].State, jobs[i].Started, jobs[i].Planned = cluster.Running, 1e18, 3
			jobs[i].Alloc = &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}}}
			spec.Request.GPUTypes = []string{"h100", "a100"}
		}
	}
	return jobs
}

func TestAppendBriefSaysWhatWriteBriefSays(t *testing.T) {
	jobs := queue(300)
	var got, want greylagv1.ListJobsResponse
	must(t, proto.Unmarshal(AppendBrief(nil, jobs, false), &got))
	want.Jobs = WriteBrief(jobs, false)
	if !proto.Equal(&got, &want) {
		t.Errorf("got %v\nwant %v", &got, &want)
	}
}

// TestFoldedListHasAllElements folds an array with a running element, another reason, a missing element
// and a job after it: each listing has all jobs, in fewer messages.
func TestFoldedListHasAllElements(t *testing.T) {
	spec := &cluster.JobSpec{Name: "sweep"}
	var jobs []*cluster.Job
	for i := range 12 {
		jobs = append(jobs, &cluster.Job{ID: 10 + cluster.JobID(i), Array: 10, Index: int32(i), Spec: spec, State: cluster.Pending, Submitted: 5})
	}
	jobs[3].State, jobs[3].Started = cluster.Running, 7
	jobs[6].Reason = cluster.ReasonArrayTaskLimit
	jobs[8].Planned = 9
	jobs = append(append(jobs[:10:10], jobs[11]), &cluster.Job{ID: 22, Spec: spec, State: cluster.Pending, Submitted: 5})
	var got, want, read greylagv1.ListJobsResponse
	must(t, proto.Unmarshal(AppendBrief(nil, jobs, true), &got))
	want.Jobs = WriteBrief(jobs, true)
	must(t, ReadList(AppendBrief(nil, jobs, true), &read))
	if !proto.Equal(&got, &want) || !proto.Equal(&read, &want) {
		t.Errorf("got %v, %v\nwant %v", &got, &read, &want)
	}
	var lines []string
	for _, j := range want.Jobs {
		lines = append(lines, fmt.Sprintf("%s+%d", j.Ref, j.Also))
	}
	if text := strings.Join(lines, " "); text != "10_0+2 10_3+0 10_4+1 10_6+0 10_7+0 10_8+0 10_9+0 10_11+0 22+0" {
		t.Error(text)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func perJob(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/job")
}

func BenchmarkBrief(b *testing.B) {
	jobs := queue(2000)
	data := AppendBrief(nil, jobs, false)
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			data = AppendBrief(data[:0], jobs, false)
		}
		perJob(b, len(jobs))
	})
	b.Run("generated", func(b *testing.B) {
		for b.Loop() {
			if _, err := proto.Marshal(&greylagv1.ListJobsResponse{Jobs: WriteBrief(jobs, false)}); err != nil {
				b.Fatal(err)
			}
		}
		perJob(b, len(jobs))
	})
	b.Run("read generated", func(b *testing.B) {
		for b.Loop() {
			must(b, proto.Unmarshal(data, &greylagv1.ListJobsResponse{}))
		}
		perJob(b, len(jobs))
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			must(b, ReadList(data, &greylagv1.ListJobsResponse{}))
		}
		perJob(b, len(jobs))
	})
}

// TestWhoCancelled checks that the user who cancelled a job is reported, and none for a job that
// was preempted or requeued, although the state keeps that user.
func TestWhoCancelled(t *testing.T) {
	spec := &cluster.JobSpec{Owner: cluster.Identity{User: "bob"}}
	for _, c := range []struct {
		job  cluster.Job
		want string
	}{
		{cluster.Job{State: cluster.Cancelled, Reason: cluster.ReasonCancelled, Requester: "ann"}, "ann"},
		{cluster.Job{State: cluster.Completing, Reason: cluster.ReasonCancelled, Requester: "ann"}, "ann"},
		{cluster.Job{State: cluster.Preempted, Reason: cluster.ReasonPreempted, Requester: "ann"}, ""},
		{cluster.Job{State: cluster.Completing, Reason: cluster.ReasonPreempted, Requester: "ann", Returns: true}, ""},
		{cluster.Job{State: cluster.Completing, Reason: cluster.ReasonPreempted, Requester: "ann", Returns: true, Canceller: "bob"}, "bob"},
		{cluster.Job{State: cluster.Completing, Reason: cluster.ReasonCancelled, Requester: "ann", Returns: true}, ""},
	} {
		c.job.Spec = spec
		if got := WriteJob(&c.job).GetRequester(); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.job.State, c.job.Reason, got, c.want)
		}
	}
}

// TestWriteAwaited checks that a starting job waits for nodes that have not confirmed its start,
// with the silence and the deadline of silent ones. For a running job only silent nodes are
// reported.
func TestWriteAwaited(t *testing.T) {
	nodes := map[string]*cluster.Node{
		"n1": {Name: "n1"}, "n2": {Name: "n2"}, "n3": {Name: "n3", Liveness: cluster.Silent, Since: 60e9},
	}
	job := &cluster.Job{State: cluster.Configuring, Tasks: cluster.NewTasks(cluster.Task{Node: "n1", Phase: cluster.TaskStarted}, cluster.Task{Node: "n2"}, cluster.Task{Node: "n3"}, cluster.Task{Node: "gone"})}
	find := func(name string) (*cluster.Node, bool) { n, known := nodes[name]; return n, known }
	list := WriteAwaited(job, find, time.Minute)
	if len(list) != 3 || list[0].Node != "n2" || list[0].SilentSince != nil || list[2].Node != "gone" {
		t.Fatal(list)
	}
	if n := list[1]; n.SilentSince.GetSeconds() != 40 || n.DownAt.GetSeconds() != 100 {
		t.Error(n)
	}
	job.State = cluster.Completing
	if list = WriteAwaited(job, find, time.Minute); len(list) != 4 {
		t.Error(list)
	}
	job.State = cluster.Running
	if list = WriteAwaited(job, find, time.Minute); len(list) != 1 || list[0].Node != "n3" || list[0].DownAt.GetSeconds() != 100 {
		t.Error(list)
	}
	if list = WriteAwaited(job, func(string) (*cluster.Node, bool) { return &cluster.Node{Liveness: cluster.Dead, Since: 180e9}, true }, time.Minute); list[0].SilentSince.GetSeconds() != 120 || list[0].DownAt.GetSeconds() != 180 {
		t.Error(list)
	}
	job.State = cluster.Completed
	if list = WriteAwaited(job, find, time.Minute); list != nil {
		t.Error(list)
	}
}

// TestWantedRequest checks that a node receives the requests per node, CPU and GPU, for the
// environment of the task.
func TestWantedRequest(t *testing.T) {
	spec := &cluster.JobSpec{Request: cluster.Request{GPUsPerNode: 2, MemPerCPU: 3, MemPerGPU: 4, TasksPerNode: 5, CPUsPerTask: 6, Gres: []cluster.Gres{{Name: "nvme", Count: 1}, {Name: "tmp", Count: 7}}}}
	w := WriteWanted(&cluster.Job{Spec: spec}, 0, command.IndexRange{}, 0, nil)
	if w.GpusPerNode != 2 || w.MemPerCpu != 3 || w.MemPerGpu != 4 || w.TasksPerNode != 5 || w.CpusPerTask != 6 || w.Tmp != 7<<20 {
		t.Error(w)
	}
}

// TestStopReasons checks what the node writes into the output of a stopped job.
func TestStopReasons(t *testing.T) {
	for want, j := range map[string]cluster.Job{
		"TIME LIMIT":     {State: cluster.Completing, Outcome: cluster.TimedOut, Reason: cluster.ReasonTimeLimit},
		"INACTIVE LIMIT": {State: cluster.Completing, Outcome: cluster.TimedOut, Reason: cluster.ReasonInactiveLimit},
		"CREDITS":        {State: cluster.Completing, Outcome: cluster.TimedOut, Reason: cluster.ReasonCredits},
		"PREEMPTION":     {State: cluster.Completing, Outcome: cluster.Preempted, Returns: true},
		"JOB REQUEUE":    {State: cluster.Completing, Outcome: cluster.Cancelled, Returns: true},
		"cancelled":      {State: cluster.Completing, Outcome: cluster.Cancelled},
		"NODE FAILURE":   {State: cluster.Completing, Outcome: cluster.NodeFailed},
		"":               {State: cluster.Completing, Outcome: cluster.Failed},
	} {
		j.Spec = &cluster.JobSpec{}
		if got := Word(WriteWanted(&j, 0, command.IndexRange{}, 0, nil).GetStopReason()); got != want {
			t.Errorf("%s: %q, want %q", j.Outcome, got, want)
		}
	}
}
