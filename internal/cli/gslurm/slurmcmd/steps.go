package slurmcmd

import (
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// Step is an active step of a job: its batch script, or one that srun started.
type Step struct {
	Job     *Job
	ID      string // within the job: batch, interactive, 0, 1, ...
	Name    string
	Nodes   []string
	Tasks   int64
	CPUs    int64
	GPUs    int64
	Memory  cluster.Bytes // of its nodes; 0 if the step has no share of its own
	Started time.Time
}

// batchStep is the ID and the name of the step of the batch script.
const batchStep = "batch"

// FullID returns the ID with that of the job: 100.batch, 110_3.0.
func (s *Step) FullID() string { return s.Job.Ref + "." + s.ID }

// TRES returns the resources of the step as Slurm writes them.
func (s *Step) TRES() string {
	return TRES(s.CPUs, s.Memory, int64(len(s.Nodes)), s.GPUs, s.Job.gpuType())
}

// Steps returns the active steps of a job: none unless its script was started.
func Steps(job *greylagv1.Job) []Step {
	j := &Fold([]*greylagv1.Job{job}, true)[0]
	if !j.HasNodes() || j.State != cluster.Running && j.State != cluster.Completing {
		return nil
	}
	first := job.Nodes[0]
	batch := Step{
		Job: j, ID: batchStep, Name: batchStep, Nodes: []string{first.Node}, Tasks: 1, CPUs: int64(first.Cpus),
		GPUs: int64(len(first.Gpus)), Memory: cluster.Bytes(first.Memory), Started: ui.StartOf(job),
	}
	all := []Step{batch}
	for _, s := range job.Steps {
		if s.State >= greylagv1.JobState_JOB_STATE_COMPLETED {
			continue
		}
		one := Step{Job: j, ID: cluster.FormatStep(s.Id), Name: s.Name, Started: ui.TimeOf(s.Started)}
		for _, n := range s.Nodes {
			one.Nodes = append(one.Nodes, n.Node)
			one.Tasks, one.CPUs, one.GPUs = one.Tasks+int64(n.Tasks), one.CPUs+int64(n.Cpus), one.GPUs+int64(len(n.Gpus))
		}
		all = append(all, one)
	}
	return all
}

// StepID names a step of a job, or with "" all of its steps.
type StepID struct{ Job, Step string }

// SelectSteps returns the active steps of jobs. ids select some; none selects all.
func SelectSteps(jobs []*greylagv1.Job, ids []StepID) (all []Step) {
	for _, j := range jobs {
		for _, s := range Steps(j) {
			if len(ids) == 0 || slices.ContainsFunc(ids, s.is) {
				all = append(all, s)
			}
		}
	}
	return all
}

// is reports whether an ID names the step: by the job, by its element of an array, or by the array.
func (s *Step) is(id StepID) bool {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return (id.Step == "" || id.Step == s.ID) && (id.Job == s.Job.Ref || id.Job == number(s.Job.Id) || id.Job == number(s.Job.BaseID()))
}

// ParseStepIDs reads 12, 12_[0-3] and 12.0, joined by commas. The error is a *ui.UsageError.
func ParseStepIDs(value string) (ids []StepID, err error) {
	words := []string{value}
	if strings.Contains(value, ".") { // no ranges of elements
		words = strings.Split(value, ",")
	}
	for _, word := range words {
		job, step, named := strings.Cut(word, ".")
		_, stepErr := cluster.ParseStep(step)
		refs, err := ui.AppendRefs(nil, job)
		if err != nil || named && stepErr != nil && step != batchStep {
			return nil, &ui.UsageError{Problem: "Invalid job_step id: " + word, Advice: "write 123, 123.0 or 123.batch"}
		}
		for _, ref := range refs {
			ids = append(ids, StepID{ref, step})
		}
	}
	return ids, nil
}
