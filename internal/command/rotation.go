package command

import "github.com/greylag/greylag/internal/codec"

// RotationStep is a step of the replacement of the cluster's CA.
type RotationStep uint8

// The steps, in their order. Cancel is possible until Finish.
const (
	// BeginRotation: nodes and login hosts accept the old and the new CA, and renew under the new one.
	BeginRotation RotationStep = iota + 1
	// CancelRotation: the old CA signs again; hosts renew under it.
	CancelRotation
	// FinishRotation: controllers renew under the new CA.
	FinishRotation
	// CompleteRotation: only the new CA is accepted.
	CompleteRotation
)

// RotateCA carries out one step of a rotation of the CA.
type RotateCA struct {
	Request  RequestID
	Actor    Actor
	Step     RotationStep
	Old, New []byte // CA certificates (DER) to begin with; empty for other steps
	Force    bool   // finish although hosts have not renewed
}

func (*RotateCA) kind() kind { return kindRotateCA }

func rotateCAFields(c *codec.Coder, x *RotateCA) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Step)
	codec.Bytes(c, &x.Old)
	codec.Bytes(c, &x.New)
	codec.Bool(c, &x.Force)
}
