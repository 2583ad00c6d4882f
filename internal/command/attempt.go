package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

func attemptRecord(c *codec.Coder, x *cluster.AttemptRecord) { codec.Record(c, x, attemptFields) }

func attemptFields(c *codec.Coder, x *cluster.AttemptRecord) {
	codec.Uint(c, &x.Attempt)
	codec.String(c, &x.Partition)
	codec.Int(c, &x.Started)
	codec.Int(c, &x.Ended)
	codec.Uint(c, &x.Outcome)
	codec.List(c, &x.TRES, amount)
	codec.Int(c, &x.CPUTime)
	codec.String(c, &x.Account)
	codec.String(c, &x.QOS)
	gpuUse(c, &x.GPU)
	codec.Int(c, &x.User)
	codec.String(c, &x.Detail)
	codec.String(c, &x.Nodes)
	exitFields(c, &x.Exit)
	heldTime(c, &x.Held)
}

func heldTime(c *codec.Coder, x *cluster.HeldTime) {
	codec.Int(c, &x.NodeMs)
	codec.Int(c, &x.CPUMs)
	codec.Int(c, &x.GPUMs)
}
