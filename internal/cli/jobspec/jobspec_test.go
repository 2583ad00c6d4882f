package jobspec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/pkg/cluster"
)

// full asks for everything; each text is the name of the field it belongs into.
func full() jobscript.Options {
	limit := 90*time.Second + time.Millisecond
	return jobscript.Options{
		Name: "name", Account: "account", Partition: "partition", Others: []string{"other_partitions"}, QOS: "qos",
		Comment: "comment", WCKey: "wckey", MailTypes: cluster.MailBegin, MailUser: "mail_user", Secrets: []string{"secrets"}, Reservation: "reservation", Image: "image", Mounts: []cluster.Mount{{Source: "/source", Target: "/target", ReadOnly: true}}, Array: "array", WorkDir: "/work_dir",
		Checkpoint: "/checkpoint_dir", FromScratch: true, Retry: &cluster.Retry{Limit: 1, AnyExit: true, ExitStatuses: []int32{3}, OutOfMemory: true},
		CheckpointSignal: cluster.WarnSignal{Number: 1, Before: 2 * time.Second, BatchOnly: true}, CheckpointEvery: 4 * time.Second, RequeueAtLimit: true, Elastic: cluster.Elastic{Step: 1, Signal: 2, BatchOnly: true},
		Burst: cluster.Burst{Mode: cluster.BurstNever, MaxCost: 2, Regions: []string{"regions"}, Market: cluster.OnDemand}, StageIn: []cluster.Staging{{URL: "url", Path: "path"}}, StageOut: []cluster.Staging{{URL: "url", Path: "path"}},
		Input: "/input", Output: "/output", Error: "/error", Append: true, Hold: true, NoRequeue: true, EveryNode: true,
		Nice: -17, TimeLimit: &limit, Begin: time.Unix(18, 5), Deadline: time.Unix(19, 0),
		Signal:  cluster.WarnSignal{Number: 25, Before: 26 * time.Second, BatchOnly: true},
		Depends: []cluster.Dependency{{Kind: cluster.After, Job: cluster.JobRef{ID: 20, Index: cluster.NoIndex}, Delay: 3 * time.Minute, Any: true}},
		Export:  jobscript.Export{Names: []string{"environment"}, None: true},
		Request: cluster.Request{
			Nodes: 1, GPUsPerNode: 2, GPUs: 3, GPUTypes: []string{"gpu_types"}, TasksPerNode: 5, CPUsPerTask: 6,
			MemPerNode: 7, MemPerCPU: 8, MemPerGPU: 9, Features: []string{"features"}, NodeList: []string{"node_list"},
			Exclude: []string{"exclude"}, Exclusive: true, GPUMemory: 14, Connect: cluster.ConnectLeaf, Switches: 16,
			SwitchWait: 17 * time.Second, Licences: []cluster.Licence{{Name: "name", Count: 2}},
			MaxPrice: 19, Regions: []string{"regions"}, MemFrom: cluster.MemoryAll, MaxNodes: 22, Tasks: 23,
			Gres: []cluster.Gres{{Name: "name", Type: "type", Count: 3}}, Share: cluster.GPUShare{Jobs: 50, MPS: true},
		},
	}
}

func encode(t *testing.T, o jobscript.Options, at jobspec.Place) *greylagv1.JobSpec {
	t.Helper()
	message, left, err := jobspec.Encode(o, jobscript.Script{Name: "x.sh", Text: []byte("script")}, []string{"args"}, at)
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	spec := &greylagv1.JobSpec{}
	if err := proto.Unmarshal(message, spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestEveryFieldHasItsNumber: what the description of the messages names is written
// under its number, and nothing else is.
func TestEveryFieldHasItsNumber(t *testing.T) {
	spec := encode(t, full(), jobspec.Place{Dir: "/dir", Host: "submit_host", Environ: []string{"environment=e"}})
	spec.Environment = []string{"environment"}
	var look func(m protoreflect.Message)
	look = func(m protoreflect.Message) {
		if len(m.GetUnknown()) > 0 {
			t.Errorf("%s: fields without a name: %x", m.Descriptor().Name(), m.GetUnknown())
		}
		for i := range m.Descriptor().Fields().Len() {
			field := m.Descriptor().Fields().Get(i)
			if !m.Has(field) {
				t.Errorf("%s: %s is never written", m.Descriptor().Name(), field.Name())
				continue
			}
			values := []protoreflect.Value{m.Get(field)}
			if field.IsList() {
				values[0] = m.Get(field).List().Get(0)
			}
			checkField(t, field, values[0], look)
		}
	}
	look(spec.ProtoReflect())
}

// checkField holds one value against the name and number of its field.
func checkField(t *testing.T, field protoreflect.FieldDescriptor, v protoreflect.Value, look func(protoreflect.Message)) {
	t.Helper()
	name, odd := string(field.Name()), []string{"kind", "job", "connect", "memory", "command"}
	switch field.Kind() {
	case protoreflect.StringKind:
		if s := v.String(); s != name && s != "/"+name && !slices.Contains(odd, name) {
			t.Errorf("%s is %q", field.FullName(), s)
		}
	case protoreflect.BytesKind:
		if string(v.Bytes()) != name {
			t.Errorf("%s is %q", field.FullName(), v.Bytes())
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if n := v.Int(); n != int64(field.Number()) && n != -int64(field.Number()) {
			t.Errorf("%s, number %d, is %d", field.FullName(), field.Number(), n)
		}
	case protoreflect.MessageKind:
		if name == "request" || name == "depends" || slices.Contains([]string{"licences", "gres", "burst", "stage_in", "stage_out"}, name) {
			look(v.Message())
		}
	}
}

func TestTimesAndDefaults(t *testing.T) {
	got := encode(t, full(), jobspec.Place{Dir: "/dir", Environ: []string{"environment=e"}})
	for name, ok := range map[string]bool{
		"time_limit":    got.TimeLimit.AsDuration() == 90*time.Second+time.Millisecond,
		"signal_before": got.SignalBefore.AsDuration() == 26*time.Second,
		"begin":         got.Begin.AsTime().Equal(time.Unix(18, 5)),
		"deadline":      got.Deadline.AsTime().Equal(time.Unix(19, 0)),
		"switch_wait":   got.Request.SwitchWait.AsDuration() == 17*time.Second,
		"connect":       got.Request.Connect == greylagv1.Connect_CONNECT_LEAF,
		"burst":         got.Burst.Mode == greylagv1.BurstMode_BURST_MODE_NEVER && got.Burst.Market == greylagv1.Market_MARKET_ON_DEMAND,
		"memory":        got.Request.Memory == greylagv1.MemorySource_MEMORY_SOURCE_ALL,
		"depends":       got.Depends[0].Kind == greylagv1.DependencyKind_DEPENDENCY_KIND_AFTER && got.Depends[0].Job == "20",
		"environment":   slices.Equal(got.Environment, []string{"environment=e"}),
	} {
		if !ok {
			t.Errorf("%s: %s", name, protojson.Format(got))
		}
	}
	zero, never := time.Duration(0), jobscript.Options{TimeLimit: new(time.Duration), Output: "o-%j", Export: jobscript.Export{None: true}}
	never.Request = cluster.Request{Connect: cluster.ConnectLeaf, SwitchWait: -1}
	got = encode(t, never, jobspec.Place{Dir: "/dir"})
	if got.TimeLimit == nil || got.TimeLimit.AsDuration() != zero || got.Begin != nil || got.Deadline != nil || got.SignalBefore != nil {
		t.Errorf("times: %s", protojson.Format(got))
	}
	if got.Name != "x.sh" || got.WorkDir != "/dir" || got.Output != "/dir/o-%j" || got.Request.SwitchWait.AsDuration() >= 0 {
		t.Errorf("defaults: %s", protojson.Format(got))
	}
	plain := encode(t, jobscript.Options{EveryNode: true, Array: "0-3"}, jobspec.Place{Dir: "/"})
	if plain.Output != "/greylag-%A_%a-%n.out" || plain.TimeLimit != nil || plain.Request == nil {
		t.Errorf("plain: %s", protojson.Format(plain))
	}
}

// TestCommand checks what a job carries of its script's path or its command.
func TestCommand(t *testing.T) {
	wrap := func(command string) jobscript.Script {
		t.Helper()
		script, err := jobscript.Wrap(command)
		if err != nil {
			t.Fatal(err)
		}
		return script
	}
	long := strings.Repeat("é", 600)
	for _, c := range []struct {
		script jobscript.Script
		want   string
	}{
		{jobscript.Script{Name: "../train.sh"}, "/home/train.sh"},
		{jobscript.Script{Name: "/opt//train\n.sh"}, "/opt/train .sh"},
		{jobscript.Script{Name: jobscript.StandardInput}, ""},
		{wrap("python train.py --lr 3"), "python train.py --lr 3"},
		{wrap("cd x\n\u202emake\x1b"), "cd x  make "},
		{wrap(long), long[:1020] + "..."},
		{wrap("echo \xff"), "echo ?"},
	} {
		message, _, err := jobspec.Encode(jobscript.Options{WorkDir: "/scratch"}, c.script, nil, jobspec.Place{Dir: "/home/ana"})
		if err != nil {
			t.Fatal(err)
		}
		spec := &greylagv1.JobSpec{}
		if err := proto.Unmarshal(message, spec); err != nil || spec.Command != c.want {
			t.Errorf("%s: %q, want %q, %v", c.script.Name, spec.Command, c.want, err)
		}
	}
}

func TestWhatIsNotText(t *testing.T) {
	script := jobscript.Script{Name: "x.sh", Text: []byte("#!/bin/sh\n")}
	var garbled *jobspec.NotText
	if _, _, err := jobspec.Encode(jobscript.Options{}, script, []string{"a\xff"}, jobspec.Place{Dir: "/"}); !errors.As(err, &garbled) {
		t.Errorf("an argument: %v", err)
	}
	if _, _, err := jobspec.Encode(jobscript.Options{}, script, nil, jobspec.Place{Dir: "/\xff"}); !errors.As(err, &garbled) {
		t.Errorf("a folder: %v", err)
	}
	_, left, err := jobspec.Encode(jobscript.Options{}, script, nil, jobspec.Place{Dir: "/", Environ: []string{"A=\xff", "B=b"}})
	if err != nil || !slices.Equal(left, []string{"A"}) {
		t.Errorf("variables: %q, %v", left, err)
	}
}

func TestRequestAndAnswer(t *testing.T) {
	spec, _, err := jobspec.Encode(full(), jobscript.Script{Text: []byte("x")}, nil, jobspec.Place{Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	request := &greylagv1.SubmitJobsRequest{}
	if err := proto.Unmarshal(jobspec.SubmitRequest("id", spec), request); err != nil || request.RequestId != "id" || len(request.Jobs) != 1 || request.Jobs[0].Name != "name" {
		t.Errorf("%v, %v", request, err)
	}
	for _, c := range []struct {
		answer *greylagv1.SubmitJobsResponse
		want   jobspec.Submitted
		line   string
	}{
		{&greylagv1.SubmitJobsResponse{Index: 9, Jobs: []*greylagv1.Submitted{{Id: 7}}}, jobspec.Submitted{ID: 7}, "submitted job 7\n"},
		{&greylagv1.SubmitJobsResponse{Jobs: []*greylagv1.Submitted{{Id: 1 << 40, ArraySize: 3}}, Warnings: []string{"w"}},
			jobspec.Submitted{ID: 1 << 40, ArraySize: 3, Warnings: true}, "submitted array 1099511627776 (3 elements)\n"},
	} {
		message, err := proto.Marshal(c.answer)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := jobspec.ReadAnswer(message); err != nil || got != c.want || got.Line(false) != c.line {
			t.Errorf("%+v, %v", got, err)
		}
	}
	two, _ := proto.Marshal(&greylagv1.SubmitJobsResponse{Jobs: []*greylagv1.Submitted{{Id: 7}, {Id: 8}}})
	for _, bad := range [][]byte{nil, two, {0xff}, {1 << 3}} {
		if _, err := jobspec.ReadAnswer(bad); err == nil {
			t.Errorf("%x is an answer", bad)
		}
	}
}

// FuzzReadAnswer: what the library reads as the answer for one job is read the same,
// and nothing crashes.
func FuzzReadAnswer(f *testing.F) {
	good, _ := proto.Marshal(&greylagv1.SubmitJobsResponse{Index: 9, Jobs: []*greylagv1.Submitted{{Id: 7, ArraySize: 2}}, Warnings: []string{"w"}})
	f.Add(good)
	f.Add([]byte{0x0a, 0x02, 0x08, 0x07})
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := jobspec.ReadAnswer(message)
		answer := &greylagv1.SubmitJobsResponse{}
		if proto.Unmarshal(message, answer) != nil || len(answer.Jobs) != 1 || answer.Jobs[0].Id == 0 || err != nil {
			return
		}
		want := jobspec.Submitted{ID: answer.Jobs[0].Id, ArraySize: answer.Jobs[0].ArraySize, Warnings: len(answer.Warnings) > 0}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestImagesPath: an image that is a path counts from the job's folder; one of a registry does not change.
func TestImagesPath(t *testing.T) {
	for reference, want := range map[string]string{
		"": "", "busybox": "busybox", "team/x.tar": "team/x.tar", "docker://h/x": "docker://h/x", "/x.tar:v1": "/x.tar:v1",
		"oci-archive:x.tar:v1": "oci-archive:/home/ana/x.tar:v1", "oci:../layout": "oci:/home/layout", "oci-archive:/x.tar": "oci-archive:/x.tar",
		"./x.tar": "/home/ana/x.tar", "../x.tar": "/home/x.tar", "oci:": "oci:",
	} {
		got := encode(t, jobscript.Options{Image: reference, WorkDir: "ana"}, jobspec.Place{Dir: "/home"})
		if got.Image != want {
			t.Errorf("%q: %q, want %q", reference, got.Image, want)
		}
	}
}
