package state

import (
	"bytes"
	"math/bits"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// specCache keeps recently submitted specifications, so that equal ones are checked once and share
// memory. It holds only what could be computed again, so replicas may differ in it.
type specCache struct {
	slots []cachedSpec // none before the first submission
	c     codec.Coder  // of the specification to find
}

const cachedSpecs = 1024

type cachedSpec struct {
	print       uint64
	raw         cluster.JobSpec // as submitted
	defaultTime bool
	key         []byte           // of raw; nil until print was met again
	spec        *cluster.JobSpec // checked, with defaults; nil in a free slot
}

// Odd constants with about as many ones as zeros, from wyhash by Wang Yi (public domain).
const (
	mix1 = 0xa0761d6478bd642f
	mix2 = 0xe7037ed1a0b428db
	mix3 = 0x8ebc6af09c88c6e3
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// fingerprint is equal for equal specifications and usually different for others. It is cheap,
// because most submissions are unique.
func fingerprint(s *cluster.JobSpec) uint64 {
	h := mix(mix3, uint64(s.Owner.UID)^mix1)
	for _, w := range [...]string{s.Name, s.WorkDir, s.Partition, s.Output} {
		h = hashWord(h, w)
	}
	for _, w := range s.Args {
		h = hashWord(h, w)
	}
	h = mix(h^uint64(s.TimeLimit), mix1^uint64(s.ArraySize))
	h = mix(h^uint64(s.Request.GPUsPerNode), mix2^uint64(s.Request.Nodes))
	h = mix(h^uint64(s.Request.GPUs), mix3^(uint64(s.Request.TasksPerNode)<<32|uint64(uint32(s.Request.CPUsPerTask))))
	return hashWord(h, string(s.Script[:8]))
}

func hashWord(h uint64, w string) uint64 {
	for len(w) >= 8 {
		h = mix(h^mix1, mix2^(uint64(w[0])|uint64(w[1])<<8|uint64(w[2])<<16|uint64(w[3])<<24|
			uint64(w[4])<<32|uint64(w[5])<<40|uint64(w[6])<<48|uint64(w[7])<<56))
		w = w[8:]
	}
	last := uint64(len(w))
	for i := range len(w) {
		last = last<<8 | uint64(w[i])
	}
	return mix(h^mix3, last^mix2)
}

// find finds a specification as submitted. If it is absent, slot and print are for put.
func (c *specCache) find(spec *cluster.JobSpec, defaultTime bool) (found *cluster.JobSpec, slot *cachedSpec, print uint64) {
	if c.slots == nil {
		c.slots = make([]cachedSpec, cachedSpecs)
	}
	print = fingerprint(spec)
	slot = &c.slots[print%cachedSpecs]
	if slot.spec == nil || slot.print != print || slot.defaultTime != defaultTime {
		return nil, slot, print
	}
	if slot.key == nil {
		slot.key = bytes.Clone(c.keyOf(&slot.raw))
	}
	if !bytes.Equal(slot.key, c.keyOf(spec)) {
		return nil, slot, print
	}
	return slot.spec, slot, print
}

func (c *specCache) keyOf(spec *cluster.JobSpec) []byte {
	c.c = codec.Writer(c.c.Written()[:0])
	command.SpecFields(&c.c, spec)
	return c.c.Written()
}

func (c *specCache) clear() { clear(c.slots) }

// wordCache lets equal short strings share memory. Like specCache it holds only what could be
// computed again.
type wordCache struct{ slots [4096]string }

func (c *wordCache) share(w *string) {
	if len(*w) == 0 || len(*w) > 128 {
		return
	}
	h := uint32(len(*w))
	for i := range len(*w) {
		h = (h ^ uint32((*w)[i])) * 0x01000193 // FNV-1a
	}
	slot := &c.slots[(h^h>>16)%uint32(len(c.slots))]
	if *slot == *w {
		*w = *slot
		return
	}
	*slot = *w
}

// shareWords makes a specification share its strings with earlier ones.
func (c *wordCache) shareWords(s *cluster.JobSpec) {
	for _, t := range s.Texts() {
		c.share(t.Text)
	}
	for _, list := range [][]string{s.Request.GPUTypes, s.Request.Features, s.Request.NodeList, s.Request.Exclude} {
		for i := range list {
			c.share(&list[i])
		}
	}
}
