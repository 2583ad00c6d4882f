package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// SetTopology replaces the fabric: the switches that nodes are attached to, and NVLink blocks.
// The nodes of a switch are names or host list expressions. Without switches the fabric is removed.
type SetTopology struct {
	Request  RequestID
	Actor    Actor
	Switches []cluster.Switch
	Expect   uint64 // version that must be in force; 0 means any
}

func (*SetTopology) kind() kind { return kindSetTopology }

func topologyFields(c *codec.Coder, x *SetTopology) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	SwitchesFields(c, &x.Switches)
	codec.Uint(c, &x.Expect)
}

// SwitchesFields are those of a fabric.
func SwitchesFields(c *codec.Coder, x *[]cluster.Switch) { codec.List(c, x, switchRecord) }

func switchRecord(c *codec.Coder, x *cluster.Switch) { codec.Record(c, x, switchFields) }

func switchFields(c *codec.Coder, x *cluster.Switch) {
	codec.String(c, &x.Name)
	codec.List(c, &x.Nodes, codec.String)
	codec.List(c, &x.Children, codec.String)
	codec.Int(c, &x.Speed)
	codec.Bool(c, &x.Block)
}
