package hosts

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// RotationPhase is the progress of a CA rotation.
type RotationPhase uint8

// The phases.
const (
	// NoRotation: each controller accepts the CAs in its own files.
	NoRotation RotationPhase = iota
	// RotationRenewing: both CAs are accepted. Nodes and login hosts renew under the new one,
	// controllers stay under the old one, which all hosts accept.
	RotationRenewing
	// RotationFinishing: both CAs are accepted. Controllers renew under the new one.
	RotationFinishing
	// RotationDone: only the new CA is accepted.
	RotationDone
)

// String is the word that the API uses.
func (p RotationPhase) String() string {
	return [...]string{"none", "renewing", "finishing", "done"}[min(p, RotationDone)]
}

// maxAuthority bounds a CA certificate, which has about 500 bytes.
const maxAuthority = 8 << 10

// Rotation is the newest replacement of the CA. The zero value: there was none.
type Rotation struct {
	Phase    RotationPhase
	Old, New []byte // CA certificates (DER)
	Started  cluster.Instant
	By       string
}

// Rotation returns the newest replacement of the CA. Its slices must not be changed.
func (x *Hosts) Rotation() Rotation { return x.rotation }

// Authorities returns the CA certificates (DER) that a host of that role accepts, the one that signs
// its next certificate first. Without a rotation, those of the controllers' files count.
func (r Rotation) Authorities(role string) [][]byte {
	switch {
	case r.Phase == NoRotation:
		return nil
	case r.Phase == RotationDone:
		return [][]byte{r.New}
	case r.Phase == RotationRenewing && role == "controller":
		return [][]byte{r.Old, r.New}
	}
	return [][]byte{r.New, r.Old}
}

// Underway reports whether two CAs are accepted.
func (r Rotation) Underway() bool { return r.Phase == RotationRenewing || r.Phase == RotationFinishing }

// Unrenewed returns the holders, ROLE/NAME, whose newest certificate is valid and not of the new CA:
// nodes and login hosts, or controllers. O(holders).
func (x *Hosts) Unrenewed(now cluster.Instant, controllers bool) (names []string) {
	sum := sha256.Sum256(x.rotation.New)
	for _, h := range x.holders.All() {
		if c, valid := h.Valid(now); valid && !bytes.Equal(c.CA[:], sum[:len(c.CA)]) && (h.Role == "controller") == controllers {
			names = append(names, h.Role+"/"+h.Name)
		}
	}
	return names
}

// RotateCA carries out one step of a rotation.
func (x *Hosts) RotateCA(now cluster.Instant, c *command.RotateCA) (refusal *command.Refusal, keep bool) {
	if c.Step != command.CompleteRotation && !c.Actor.Has(command.RoleAdmin) {
		return denied(c.Actor, "rotate the CA"), false
	}
	next := x.rotation
	switch c.Step {
	case command.BeginRotation:
		refusal = x.checkBegin(c)
		next = Rotation{Phase: RotationRenewing, Old: slices.Clone(c.Old), New: slices.Clone(c.New), Started: now, By: c.Actor.Identity.User}
	case command.CancelRotation:
		refusal = x.checkPhase(RotationRenewing, "no rotation can be cancelled", "a rotation can be cancelled until it is finished: gctl cert list shows its progress")
		next.Old, next.New = next.New, next.Old
	case command.FinishRotation:
		refusal = x.checkFinish(now, c.Force)
		next.Phase = RotationFinishing
	case command.CompleteRotation:
		refusal = x.checkPhase(RotationFinishing, "no rotation is being finished", "")
		next.Phase = RotationDone
	default:
		refusal = command.Refusef(command.InvalidArgument, "unknown rotation step %d", c.Step)
	}
	if refusal == nil {
		x.rotation = next
	}
	return refusal, true
}

// ForgetRotation forgets the replacement of the CA: the controllers' files tell which CAs exist.
func (x *Hosts) ForgetRotation() { x.rotation = Rotation{} }

func (x *Hosts) checkPhase(want RotationPhase, problem, hint string) *command.Refusal {
	if x.rotation.Phase == want {
		return nil
	}
	return command.Refuse(command.Conflict, problem, hint)
}

func (x *Hosts) checkBegin(c *command.RotateCA) *command.Refusal {
	switch {
	case x.rotation.Underway():
		return command.WithHint(command.Refusef(command.Conflict, "a CA rotation has been in progress since %s", x.rotation.Started.Time().UTC().Format("2006-01-02 15:04 UTC")),
			"gctl cert list shows which hosts it waits for")
	case len(c.Old) == 0 || len(c.New) == 0 || max(len(c.Old), len(c.New)) > maxAuthority || bytes.Equal(c.Old, c.New):
		return command.Refuse(command.InvalidArgument, "a rotation needs the certificates of the old and the new CA", "")
	}
	return nil
}

// maxNamed is how many hosts a refusal names.
const maxNamed = 8

func (x *Hosts) checkFinish(now cluster.Instant, force bool) *command.Refusal {
	if refusal := x.checkPhase(RotationRenewing, "no CA rotation to finish", "gctl cert rotate begins one"); refusal != nil {
		return refusal
	}
	if late := x.Unrenewed(now, false); len(late) > 0 && !force {
		names := strings.Join(late[:min(len(late), maxNamed)], ", ")
		if more := len(late) - maxNamed; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		return command.Refuse(command.Conflict, "hosts without a certificate of the new CA: "+names,
			"start their daemons, which renew within two minutes, or remove the hosts; --force finishes without them, and they must join again")
	}
	return nil
}

func rotationFields(c *codec.Coder, r *Rotation) {
	codec.Uint(c, &r.Phase)
	codec.Bytes(c, &r.Old)
	codec.Bytes(c, &r.New)
	codec.Int(c, &r.Started)
	codec.String(c, &r.By)
}

func (x *Hosts) readRotation(c *codec.Coder) {
	codec.Record(c, &x.rotation, rotationFields)
	r := &x.rotation
	if !c.Failed() && (r.Phase == NoRotation || r.Phase > RotationDone || len(r.New) == 0 || len(r.Old) == 0) {
		c.Fail("the rotation of the CA is not well formed")
	}
}
