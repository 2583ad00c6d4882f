package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

func createStepFields(c *codec.Coder, x *CreateStep) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Job)
	codec.Record(c, &x.Step, stepSpecFields)
}

func signalStepFields(c *codec.Coder, x *SignalStep) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Step)
	codec.Int(c, &x.Signal)
}

func attachStepFields(c *codec.Coder, x *AttachStep) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Step)
	codec.Record(c, &x.Contact, stepContactFields)
}

func stepSpecFields(c *codec.Coder, x *cluster.StepSpec) {
	codec.String(c, &x.Name)
	codec.List(c, &x.NodeList, codec.String)
	codec.List(c, &x.Exclude, codec.String)
	for _, n := range [...]*int32{&x.FirstNode, &x.Nodes, &x.Tasks, &x.TasksPerNode, &x.CPUsPerTask, &x.GPUs, &x.GPUsPerTask, &x.GPUsPerNode} {
		codec.Int(c, n)
	}
	codec.Bool(c, &x.Exact)
	codec.Bool(c, &x.Overlap)
	codec.Record(c, &x.Contact, stepContactFields)
	codec.Bool(c, &x.Terminal)
	codec.Bool(c, &x.Interactive)
}

func stepContactFields(c *codec.Coder, x *cluster.StepContact) {
	codec.List(c, &x.Addresses, codec.String)
	codec.Fixed(c, x.Fingerprint[:])
	codec.Fixed(c, x.Key[:])
}

func stepReport(c *codec.Coder, x *StepReport) { codec.Record(c, x, stepReportFields) }

func stepReportFields(c *codec.Coder, x *StepReport) {
	codec.Uint(c, &x.Step)
	exitFields(c, &x.Exit)
	codec.Bool(c, &x.OutOfMemory)
	codec.Int(c, &x.Memory)
	codec.Int(c, &x.CPUTime)
	codec.Int(c, &x.User)
}

// steps codes the steps of a job. O(steps).
func steps(c *codec.Coder, x *[]*cluster.Step) {
	codec.List(c, x, func(c *codec.Coder, s **cluster.Step) {
		if c.Reading() {
			*s = new(cluster.Step)
		}
		codec.Record(c, *s, StepFields)
	})
}

// StepFields are those of a step.
func StepFields(c *codec.Coder, x *cluster.Step) {
	codec.String(c, &x.Name)
	codec.List(c, &x.Nodes, stepNode)
	codec.Int(c, &x.CPUsPerTask)
	codec.Bool(c, &x.Exclusive)
	codec.Optional(c, &x.Contact, stepContactFields)
	codec.List(c, &x.Signals, stepSignal)
	codec.Bool(c, &x.Stop)
	codec.Int(c, &x.Started)
	codec.Int(c, &x.Ended)
	codec.String(c, &x.Requester)
	codec.Bool(c, &x.OutOfMemory)
	exitFields(c, &x.Exit)
	codec.Int(c, &x.Memory)
	codec.Int(c, &x.CPUTime)
	codec.Int(c, &x.User)
	codec.Bool(c, &x.Terminal)
	codec.Uint(c, &x.ID)
}

func stepNode(c *codec.Coder, x *cluster.StepNode) { codec.Record(c, x, stepNodeFields) }

func stepNodeFields(c *codec.Coder, x *cluster.StepNode) {
	codec.Int(c, &x.Rank)
	codec.Int(c, &x.Tasks)
	codec.List(c, &x.GPUs, codec.Int[int32])
	codec.Bool(c, &x.Ended)
}

func stepSignal(c *codec.Coder, x *cluster.StepSignal) {
	codec.Uint(c, &x.ID)
	codec.Int(c, &x.Number)
}
