package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/pkg/cluster"
)

// spec writes what is asked for in the form of the API, with the paths made whole.
func (p *Process) spec(o jobscript.Options, script jobscript.Script, args []string) (*greylagv1.JobSpec, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	if o.WorkDir != "" {
		dir = filepath.Clean(below(dir, o.WorkDir))
	}
	if o.Output == "" {
		o.Output = defaultOutput(o)
	}
	for _, text := range append([]string{dir}, args...) {
		if !utf8.ValidString(text) {
			return nil, &UsageError{fmt.Sprintf("%q is not UTF-8", text), "the working directory and the script's arguments must be"}
		}
	}
	host, _ := os.Hostname() // for people only; "" is fine
	s := &greylagv1.JobSpec{
		Name: o.Name, Account: o.Account, Partition: o.Partition, Others: o.Others, Reservation: o.Reservation, Qos: o.QOS, Comment: o.Comment,
		Request: requestProto(o.Request), Script: script.Text, Args: args,
		Environment: p.environment(o.Export),
		WorkDir:     dir, Output: below(dir, o.Output), Append: o.Append, Image: o.Image,
		NoRequeue: o.NoRequeue, Nice: o.Nice, Array: o.Array, Hold: o.Hold, EveryNode: o.EveryNode,
		SubmitHost: host, Signal: o.Signal.Number, SignalBatchOnly: o.Signal.BatchOnly,
		Begin: moment(o.Begin), Deadline: moment(o.Deadline),
	}
	if s.Name == "" {
		s.Name = script.JobName()
	}
	if o.Error != "" {
		s.Error = below(dir, o.Error)
	}
	if o.Input != "" {
		s.Input = below(dir, o.Input)
	}
	if o.TimeLimit != nil {
		s.TimeLimit = durationpb.New(*o.TimeLimit)
	}
	if o.Signal.Number != 0 {
		s.SignalBefore = durationpb.New(o.Signal.Before)
	}
	for _, d := range o.Depends {
		one := &greylagv1.Dependency{Kind: d.Kind.String()}
		if d.Kind != cluster.Singleton {
			one.Job = d.Job.String()
		}
		s.Depends = append(s.Depends, one)
	}
	return s, nil
}

// environment is what the job gets of this process's. What is not UTF-8 cannot be
// sent, and is no reason to refuse the job.
func (p *Process) environment(e jobscript.Export) []string {
	return slices.DeleteFunc(e.Environment(p.Environ), func(pair string) bool {
		if utf8.ValidString(pair) {
			return false
		}
		name, _, _ := strings.Cut(pair, "=")
		p.Warn(fmt.Sprintf("the variable %q is not UTF-8: the job does not get it", name))
		return true
	})
}

func defaultOutput(o jobscript.Options) string {
	name := "greylag-%j"
	if o.Array != "" {
		name = "greylag-%A_%a"
	}
	if o.EveryNode {
		name += "-%n"
	}
	return name + ".out"
}

// below is path seen from dir. It is not cleaned: a pattern in it may stand for
// anything.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}

func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func requestProto(q cluster.Request) *greylagv1.Request {
	p := &greylagv1.Request{
		Nodes: q.Nodes, GpusPerNode: q.GPUsPerNode, Gpus: q.GPUs, GpuTypes: q.GPUTypes,
		TasksPerNode: q.TasksPerNode, CpusPerTask: q.CPUsPerTask,
		MemPerNode: int64(q.MemPerNode), MemPerCpu: int64(q.MemPerCPU), MemPerGpu: int64(q.MemPerGPU),
		Features: q.Features, NodeList: q.NodeList, Exclude: q.Exclude, Exclusive: q.Exclusive,
		GpuMemory: int64(q.GPUMemory), Switches: q.Switches,
	}
	if q.Connect != cluster.ConnectAny {
		p.Connect = q.Connect.String()
	}
	switch {
	case !q.Tied(), q.SwitchWait == cluster.SwitchDefault:
	case q.SwitchWait < 0:
		p.SwitchWait = durationpb.New(-time.Second)
	default:
		p.SwitchWait = durationpb.New(q.SwitchWait)
	}
	for _, l := range q.Licences {
		p.Licences = append(p.Licences, &greylagv1.Licence{Name: l.Name, Count: l.Count})
	}
	return p
}
