package state

import (
	"bytes"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// specCache remembers specifications that were submitted lately, so that equal
// ones are checked once and share memory. It holds only what could be computed
// again, so replicas may differ in it.
type specCache struct {
	slots [1024]cachedSpec
	key   []byte // of the specification being looked up
}

type cachedSpec struct {
	key  []byte
	spec *cluster.JobSpec // checked, with its defaults filled in
}

// find looks up a specification as submitted; slot is where it belongs.
func (c *specCache) find(spec *cluster.JobSpec, defaultTime bool) (found *cluster.JobSpec, slot int) {
	w := codec.Writer(c.key[:0])
	command.SpecFields(&w, spec)
	codec.Bool(&w, &defaultTime)
	c.key = w.Written()
	slot = int(hash64(0, c.key) % uint64(len(c.slots)))
	if e := &c.slots[slot]; e.spec != nil && bytes.Equal(e.key, c.key) {
		return e.spec, slot
	}
	return nil, slot
}

// put remembers what the key of the last find became.
func (c *specCache) put(slot int, spec *cluster.JobSpec) {
	c.slots[slot] = cachedSpec{bytes.Clone(c.key), spec}
}

func (c *specCache) clear() { clear(c.slots[:]) }

// wordCache lets equal short strings share memory. Like specCache it holds nothing
// that matters.
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
	for _, w := range []*string{
		&s.Name, &s.Owner.User, &s.Account, &s.Partition, &s.QOS, &s.WorkDir, &s.Input, &s.Output,
		&s.Error, &s.Image, &s.ImageDigest, &s.Comment, &s.SubmitHost,
	} {
		c.share(w)
	}
	for _, list := range [][]string{s.Request.GPUTypes, s.Request.Features, s.Request.NodeList, s.Request.Exclude} {
		for i := range list {
			c.share(&list[i])
		}
	}
}
