package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ReadStepSpec reads the specification of a step. The errors are refusals. The state checks the numbers.
func ReadStepSpec(p *greylagv1.StepSpec) (cluster.StepSpec, error) {
	s := cluster.StepSpec{
		Name: p.GetName(), NodeList: p.GetNodes(), Exclude: p.GetExclude(), FirstNode: p.GetFirstNode(), Nodes: p.GetNodeCount(),
		Tasks: p.GetTasks(), TasksPerNode: p.GetTasksPerNode(), CPUsPerTask: p.GetCpusPerTask(),
		GPUs: p.GetGpus(), GPUsPerTask: p.GetGpusPerTask(), GPUsPerNode: -1, Exact: p.GetExact(), Overlap: p.GetOverlap(),
		Terminal: p.GetTerminal(), Interactive: p.GetInteractive(),
	}
	if p != nil && p.GpusPerNode != nil {
		s.GPUsPerNode = p.GetGpusPerNode()
	}
	var err error
	s.Contact, err = ReadStepContact(p)
	return s, err
}

// ReadStepContact reads how the nodes of a step reach a program of the user. The errors are refusals.
func ReadStepContact(p interface {
	GetContact() []string
	GetFingerprint() []byte
	GetKey() []byte
}) (cluster.StepContact, error) {
	c := cluster.StepContact{Addresses: p.GetContact()}
	if copy(c.Fingerprint[:], p.GetFingerprint()) != len(p.GetFingerprint()) || len(p.GetFingerprint()) != len(c.Fingerprint) {
		return c, refuse("the fingerprint of a step has %d bytes, want %d", len(p.GetFingerprint()), len(c.Fingerprint))
	}
	if copy(c.Key[:], p.GetKey()) != len(p.GetKey()) || len(p.GetKey()) != len(c.Key) {
		return c, refuse("the key of a step has %d bytes, want %d", len(p.GetKey()), len(c.Key))
	}
	return c, nil
}

// WriteStepNodes writes the layout of a step of a job.
func WriteStepNodes(j *cluster.Job, s *cluster.Step) []*greylagv1.StepNode {
	list := make([]*greylagv1.StepNode, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		a := &j.Alloc.Nodes[n.Rank]
		p := &greylagv1.StepNode{Node: a.Node, Tasks: n.Tasks, Cpus: a.CPUs}
		for _, g := range n.GPUs {
			p.Gpus = append(p.Gpus, a.GPUs[g])
		}
		list = append(list, p)
	}
	return list
}

// writeSteps writes the steps of a job's current or last attempt.
func writeSteps(j *cluster.Job) (list []*greylagv1.Step) {
	if j.Alloc == nil {
		return nil
	}
	for _, s := range j.Steps {
		p := &greylagv1.Step{
			Id: s.ID, Name: s.Name, State: Enum[greylagv1.JobState](s.State().String()), Nodes: WriteStepNodes(j, s),
			Started: Timestamp(s.Started), Ended: Timestamp(s.Ended), ExitCode: s.Exit.Code, ExitSignal: s.Exit.Signal,
			MemoryPeak: int64(s.Memory), Requester: s.Requester, Terminal: s.Terminal,
		}
		if s.CPUTime != 0 {
			p.CpuTime, p.UserTime = durationpb.New(s.CPUTime), durationpb.New(s.User)
		}
		list = append(list, p)
	}
	return list
}

// writeWantedSteps writes the active steps with tasks on the node of a rank.
func writeWantedSteps(j *cluster.Job, rank int) (list []*greylagv1.WantedStep) {
	for _, s := range j.ActiveSteps() {
		at := s.On(rank)
		if at < 0 || s.Nodes[at].Ended {
			continue
		}
		p := &greylagv1.WantedStep{
			Id: s.ID, Name: s.Name, Nodes: WriteStepNodes(j, s), Node: int32(at), Gpus: s.Nodes[at].GPUs, CpusPerTask: s.CPUsPerTask,
			Contact: s.Contact.Addresses, Fingerprint: s.Contact.Fingerprint[:], Key: s.Contact.Key[:], Stop: s.Stop,
		}
		for _, signal := range s.Signals {
			p.Signals = append(p.Signals, &greylagv1.Signal{Id: signal.ID, Number: signal.Number})
		}
		list = append(list, p)
	}
	return list
}

// maxReportedSteps bounds the steps of one task in a report.
const maxReportedSteps = cluster.MaxSteps

// readSteps reads the steps of a task that have ended. The errors are refusals.
func readSteps(list []*greylagv1.ReportedStep) ([]command.StepReport, error) {
	if len(list) > maxReportedSteps {
		return nil, refuse("%d steps of a task are reported: at most %d", len(list), maxReportedSteps)
	}
	var all []command.StepReport
	for _, p := range list {
		r := command.StepReport{
			Step: p.GetId(), Exit: cluster.Exit{Code: p.GetExitCode(), Signal: p.GetExitSignal()}, OutOfMemory: p.GetOutOfMemory(),
			Memory: max(0, cluster.Bytes(p.GetMemoryPeak())),
		}
		var errs [2]error
		r.CPUTime, errs[0] = duration("CPU time", p.GetCpuTime())
		r.User, errs[1] = duration("user time", p.GetUserTime())
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
		r.User = min(r.User, r.CPUTime)
		all = append(all, r)
	}
	return all, nil
}
