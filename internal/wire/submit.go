package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of one job's content.
const (
	MaxScript      = 4 << 20 // bytes; as sbatch's
	MaxEnvironment = 1 << 20 // bytes, names and values together
)

// Submission is one submitted job with the contents that it names by digest.
type Submission struct {
	command.Submission
	Script      []byte
	Environment []byte // NUL-separated KEY=VALUE pairs
}

// ReadSubmission reads a specification for its owner. It fills in defaults that follow from the
// specification alone. The errors are refusals. O(size).
func ReadSubmission(p *greylagv1.JobSpec, owner cluster.Identity) (Submission, error) {
	var s Submission
	request, err := ReadRequest(p.GetRequest())
	if err != nil {
		return s, err
	}
	s.Spec = cluster.JobSpec{
		Name: p.GetName(), Owner: owner, Account: p.GetAccount(), Partition: p.GetPartition(), QOS: p.GetQos(),
		Request: request, Args: p.GetArgs(), WorkDir: p.GetWorkDir(), Input: p.GetInput(), Output: p.GetOutput(),
		Error: p.GetError(), Append: p.GetAppend(), Image: p.GetImage(), Requeue: !p.GetNoRequeue(), Nice: p.GetNice(),
		Comment: p.GetComment(), WCKey: p.GetWckey(), MailUser: p.GetMailUser(), SubmitHost: p.GetSubmitHost(), EveryNode: p.GetEveryNode(),
		OtherPartitions: p.GetOtherPartitions(), Reservation: p.GetReservation(), Command: p.GetCommand(), Secrets: p.GetSecrets(), Mounts: readMounts(p.GetMounts()),
		CheckpointDir: p.GetCheckpointDir(), FromScratch: p.GetFromScratch(), Retry: readRetry(p.GetRetry()), RequeueAtLimit: p.GetRequeueAtLimit(),
		Elastic: cluster.Elastic{Step: p.GetElastic().GetStep(), Signal: p.GetElastic().GetSignal(), BatchOnly: p.GetElastic().GetBatchOnly()},
		Signal:  cluster.WarnSignal{Number: p.GetSignal(), BatchOnly: p.GetSignalBatchOnly()},
	}
	s.Held, s.DefaultTime = p.GetHold(), p.GetTimeLimit() == nil
	for _, read := range []func(*greylagv1.JobSpec) error{s.readTimes, s.readCheckpointSignal, s.readArray, s.readMail, s.readDepends, s.readScript, s.readEnvironment, s.readBurst} {
		if err := read(p); err != nil {
			return Submission{}, err
		}
	}
	if err := s.Spec.Validate(); err != nil {
		return Submission{}, invalid(err)
	}
	return s, nil
}

// WriteSubmission is the reverse of ReadSubmission for a job that is no array.
func WriteSubmission(s *Submission) *greylagv1.JobSpec {
	x := &s.Spec
	p := &greylagv1.JobSpec{
		Name: x.Name, Account: x.Account, Partition: x.Partition, Qos: x.QOS, Request: WriteRequest(&x.Request),
		Script: s.Script, Environment: Environment(s.Environment), Args: x.Args, WorkDir: x.WorkDir, Input: x.Input, Output: x.Output,
		Error: x.Error, Append: x.Append, Image: x.Image, NoRequeue: !x.Requeue, Nice: x.Nice, Begin: Timestamp(x.Begin), Deadline: Timestamp(x.Deadline),
		Depends: writeDependencies(x.Depends), Comment: x.Comment, SubmitHost: x.SubmitHost, Hold: s.Held,
		Signal: x.Signal.Number, SignalBatchOnly: x.Signal.BatchOnly, EveryNode: x.EveryNode, OtherPartitions: x.OtherPartitions,
		Reservation: x.Reservation, Command: x.Command, Wckey: x.WCKey, MailTypes: writeMailTypes(x.MailTypes), MailUser: x.MailUser, Secrets: x.Secrets,
		Mounts: writeMounts(x.Mounts), CheckpointDir: x.CheckpointDir, FromScratch: x.FromScratch, Retry: writeRetry(&x.Retry),
		CheckpointSignal: writeCheckpointSignal(x), RequeueAtLimit: x.RequeueAtLimit, Elastic: writeElastic(x),
		Burst: writeBurst(&x.Burst), StageIn: WriteStaging(x.StageIn), StageOut: WriteStaging(x.StageOut),
	}
	if x.Signal.Before > 0 {
		p.SignalBefore = durationpb.New(x.Signal.Before)
	}
	if !s.DefaultTime {
		p.TimeLimit = durationpb.New(x.TimeLimit)
	}
	return p
}

func readMounts(list []*greylagv1.Mount) (mounts []cluster.Mount) {
	for _, m := range list {
		mounts = append(mounts, cluster.Mount{Source: m.GetSource(), Target: m.GetTarget(), ReadOnly: m.GetReadOnly()})
	}
	return mounts
}

func writeMounts(mounts []cluster.Mount) (list []*greylagv1.Mount) {
	for _, m := range mounts {
		list = append(list, &greylagv1.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return list
}

// invalid makes one refusal of the errors of Validate.
func invalid(err error) error {
	text := strings.ReplaceAll(err.Error(), cluster.ErrInvalidJob.Error()+": ", "")
	return refuse("%s", strings.ReplaceAll(text, "\n", "; "))
}

func (s *Submission) readTimes(p *greylagv1.JobSpec) error {
	var errs [4]error
	s.Spec.TimeLimit, errs[0] = duration("time limit", p.GetTimeLimit())
	s.Spec.Begin, errs[1] = instant("begin", p.GetBegin())
	s.Spec.Deadline, errs[2] = instant("deadline", p.GetDeadline())
	s.Spec.Signal.Before, errs[3] = duration("the time of the signal before the end", p.GetSignalBefore())
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Submission) readArray(p *greylagv1.JobSpec) (err error) {
	if p.GetArray() != "" {
		s.Array, s.Spec.ArrayLimit, err = ParseArray(p.GetArray())
	}
	return err
}

func (s *Submission) readMail(p *greylagv1.JobSpec) error {
	for _, t := range p.GetMailTypes() {
		one, err := cluster.ParseMailTypes(Word(t))
		if err != nil {
			return Unset("mail_types", t)
		}
		s.Spec.MailTypes |= one
	}
	return nil
}

func writeMailTypes(m cluster.MailTypes) (list []greylagv1.MailType) {
	for _, t := range m.Each() {
		list = append(list, Enum[greylagv1.MailType](t.String()))
	}
	return list
}

func (s *Submission) readDepends(p *greylagv1.JobSpec) (err error) {
	s.Spec.Depends, err = readDependencies(p.GetDepends())
	return err
}

func (s *Submission) readScript(p *greylagv1.JobSpec) error {
	s.Script = p.GetScript()
	if err := CheckScript(s.Script); err != nil {
		return err
	}
	s.Spec.Script = sha256.Sum256(s.Script)
	return nil
}

// CheckScript refuses a script that a kernel cannot start or a terminal cannot show.
func CheckScript(script []byte) error {
	hinted := func(hint, format string, args ...any) error {
		r := refuse(format, args...)
		r.Hint = hint
		return r
	}
	first, _, _ := bytes.Cut(script, []byte("\n"))
	switch at := bytes.IndexByte(script, 0); {
	case len(script) == 0:
		return hinted("give a script that begins with #! and its interpreter, such as #!/bin/bash", "the script is empty")
	case len(script) > MaxScript:
		return hinted("put the data into files and let the script read them", "the script has %d bytes, at most %d are taken", len(script), MaxScript)
	case at >= 0:
		return hinted("submit a script that starts the program", "the script holds a NUL byte at offset %d: it is a binary file", at)
	case !bytes.HasPrefix(script, []byte("#!")):
		return hinted("begin it with #! and its interpreter, such as #!/bin/bash", "the script does not begin with #!")
	case bytes.HasSuffix(first, []byte("\r")):
		return hinted("convert it: sed -i 's/\\r$//' SCRIPT", "the script has DOS line ends, so its interpreter would not be found")
	}
	return nil
}

func (s *Submission) readEnvironment(p *greylagv1.JobSpec) error {
	size := 0
	for i, pair := range p.GetEnvironment() {
		name, _, found := strings.Cut(pair, "=")
		if !found || name == "" || strings.IndexByte(pair, 0) >= 0 {
			return refuse("environment entry %d is not NAME=VALUE, or holds a NUL byte", i+1)
		}
		size += len(pair) + 1
	}
	if size > MaxEnvironment {
		r := refuse("the environment has %d bytes, at most %d are taken", size, MaxEnvironment)
		r.Hint = "export less, with --export=NAME,..."
		return r
	}
	if size == 0 {
		return nil
	}
	s.Environment = []byte(strings.Join(p.GetEnvironment(), "\x00"))
	s.Spec.Environment = sha256.Sum256(s.Environment)
	return nil
}

// Environment returns the pairs of a stored environment.
func Environment(content []byte) []string {
	if len(content) == 0 {
		return nil
	}
	return strings.Split(string(content), "\x00")
}

// ReadRequest reads the requested resources; node lists may be hostlist expressions. The errors are
// refusals.
func ReadRequest(p *greylagv1.Request) (cluster.Request, error) {
	r := cluster.Request{
		Nodes: p.GetNodes(), GPUsPerNode: p.GetGpusPerNode(), GPUs: p.GetGpus(),
		TasksPerNode: p.GetTasksPerNode(), CPUsPerTask: p.GetCpusPerTask(), MemPerNode: cluster.Bytes(p.GetMemPerNode()),
		MemPerCPU: cluster.Bytes(p.GetMemPerCpu()), MemPerGPU: cluster.Bytes(p.GetMemPerGpu()),
		Features: p.GetFeatures(), Exclusive: p.GetExclusive(),
		GPUMemory: cluster.Bytes(p.GetGpuMemory()), Switches: p.GetSwitches(),
		MaxPrice: p.GetMaxPrice(), Regions: p.GetRegions(), MemFrom: cluster.MemorySource(p.GetMemory()),
		MaxNodes: p.GetMaxNodes(), Tasks: p.GetTasks(), Share: cluster.GPUShare{Jobs: p.GetGpuShare(), MPS: p.GetMps()},
	}
	if err := readPlaces(p, &r); err != nil {
		return r, err
	}
	for _, t := range p.GetGpuTypes() {
		r.GPUTypes = append(r.GPUTypes, strings.ToLower(t))
	}
	var err error
	if r.NodeList, err = names("node list", p.GetNodeList()); err != nil {
		return r, err
	}
	r.Exclude, err = names("list of excluded nodes", p.GetExclude())
	return r, err
}

// WriteRequest is the reverse of ReadRequest; lists are written expanded.
func WriteRequest(r *cluster.Request) *greylagv1.Request {
	return &greylagv1.Request{
		Nodes: r.Nodes, GpusPerNode: r.GPUsPerNode, Gpus: r.GPUs, GpuTypes: r.GPUTypes,
		TasksPerNode: r.TasksPerNode, CpusPerTask: r.CPUsPerTask, MemPerNode: int64(r.MemPerNode),
		MemPerCpu: int64(r.MemPerCPU), MemPerGpu: int64(r.MemPerGPU), Features: r.Features,
		NodeList: r.NodeList, Exclude: r.Exclude, Exclusive: r.Exclusive,
		GpuMemory: int64(r.GPUMemory), Connect: writeConnect(r), Switches: r.Switches, SwitchWait: writeSwitchWait(r),
		Licences: writeLicences(r.Licences), MaxPrice: r.MaxPrice, Regions: r.Regions, Memory: greylagv1.MemorySource(r.MemFrom),
		MaxNodes: r.MaxNodes, Tasks: r.Tasks, Gres: WriteGres(r.Gres),
		GpuShare: r.Share.Jobs, Mps: r.Share.MPS,
	}
}

// names expands hostlist expressions, sorted and without duplicates.
func names(what string, expressions []string) ([]string, error) {
	var all []string
	for _, e := range expressions {
		if !strings.ContainsAny(e, ",[ ") {
			all = append(all, e)
			continue
		}
		list, err := hostlist.Expand(e)
		if err != nil {
			return nil, refuse("%s: %v", what, err)
		}
		if all = append(all, list...); len(all) > hostlist.Most {
			break
		}
	}
	if len(all) > hostlist.Most {
		return nil, refuse("%s: more than %d names", what, hostlist.Most)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// ReadNames expands hostlist expressions of a request about nodes.
func ReadNames(expressions []string) ([]string, error) { return names("nodes", expressions) }

func readDependencies(list []*greylagv1.Dependency) ([]cluster.Dependency, error) {
	var all []cluster.Dependency
	for _, p := range list {
		kind := cluster.DependencyKind(p.GetKind())
		if kind == 0 {
			return nil, Unset("depends.kind", p.GetKind())
		}
		d := cluster.Dependency{Kind: kind, Any: p.GetAny()}
		if kind != cluster.Singleton {
			ref, err := ReadRef(p.GetJob())
			if err != nil {
				return nil, err
			}
			d.Job, d.Delay = ref, time.Duration(min(p.GetMinutes(), maxMinutes))*time.Minute
		} else if p.GetJob() != "" {
			return nil, refuse("the dependency singleton names no job")
		}
		all = append(all, d)
	}
	return all, nil
}

// maxMinutes is more than a job may wait after the start of another, and does not overflow.
const maxMinutes = 100_000_000

func writeDependencies(list []cluster.Dependency) []*greylagv1.Dependency {
	var all []*greylagv1.Dependency
	for _, d := range list {
		p := &greylagv1.Dependency{Kind: greylagv1.DependencyKind(d.Kind), Any: d.Any}
		if d.Kind != cluster.Singleton {
			p.Job, p.Minutes = d.Job.String(), int32(d.Delay/time.Minute)
		}
		all = append(all, p)
	}
	return all
}

// ReadRef reads a job's name, 123 or 123_4. The error is a refusal.
func ReadRef(word string) (cluster.JobRef, error) {
	ref, err := cluster.ParseJobRef(word)
	if errors.Is(err, cluster.ErrBadJobID) {
		return ref, refuse("%.60q is not a job ID: want 123 or 123_4", word)
	}
	return ref, err
}
