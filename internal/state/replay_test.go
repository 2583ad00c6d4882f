package state

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

func digestOf(b []byte) cluster.Digest { return sha256.Sum256(b) }

// scramble fills a value with random contents.
func scramble(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			scramble(r, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			scramble(r, v.Field(i))
		}
	case reflect.Slice:
		n := r.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			scramble(r, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			scramble(r, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.String:
		v.SetString([]string{"", "n1", "main", "ada", "standard", "\x00\xff", "x[1-", "/a"}[r.IntN(8)])
	case reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, 2, -1, 1 << 30, -1 << 31, int64(r.Uint32N(9))}[r.IntN(7)])
	default:
		v.SetUint([]uint64{0, 1, 2, 3, 255, uint64(r.Uint32N(9))}[r.IntN(6)])
	}
}

var small = limits{tail: 40, requests: 25, requestBytes: 4096, levels: 1000}

// story runs n random commands and checks everything after each.
func story(t *testing.T, seed uint64, n int) (*State, []entry) {
	s := newState(small, new(table.Hasher))
	x := &chaos{r: rand.New(rand.NewPCG(seed, 7)), s: s, mute: seed%2 == 0, leases: seed%3 == 2}
	var log []entry
	var finished uint64
	for i := range n {
		e := entry{uint64(i/3) + 1, s.now.Add(time.Duration(x.pick(9)-1) * time.Second), x.next()}
		if i < 6 {
			e.c = x.register()
		}
		before, index, now := bodyDigest(s), s.index, s.now
		result := s.Apply(e.index, e.at, e.c)
		log = append(log, e)
		if err := s.Check(); err != nil {
			t.Fatalf("seed %d, command %d, %T: %v\n%+v", seed, i, e.c, err, e.c)
		}
		if s.index < index || s.now < now {
			t.Fatalf("seed %d, command %d: index or time ran backwards", seed, i)
		}
		if _, refused := result.(*command.Refusal); refused && before != bodyDigest(s) && !remembers(e.c) {
			t.Fatalf("seed %d, command %d: %T was refused and changed the state", seed, i, e.c)
		}
		for _, f := range s.Effects().Finished {
			if finished++; f.Seq != finished {
				t.Fatalf("seed %d: finished job %d has number %d, want %d", seed, f.Job.ID, f.Seq, finished)
			}
			if j, err := command.DecodeJob(f.Record); err != nil || j.ID != f.Job.ID {
				t.Fatalf("seed %d: record of job %d: %v", seed, f.Job.ID, err)
			}
		}
	}
	return s, log
}

// remembers reports whether a refusal of c may change the state: it is stored for its request ID,
// or expired records were dropped with it.
func remembers(c command.Command) bool {
	switch c := c.(type) {
	case *command.SubmitJobs:
		return c.Request != command.RequestID{}
	case *command.CancelJobs:
		return c.Request != command.RequestID{}
	case *command.UpdateNodes:
		return c.Request != command.RequestID{}
	case *command.EditAccounts:
		return c.Request != command.RequestID{}
	case *command.SetTopology:
		return c.Request != command.RequestID{}
	case *command.ApplyPolicy:
		return c.Request != command.RequestID{}
	case *command.EndLeases:
		return c.Request != command.RequestID{}
	case *command.RevokeCertificates:
		return c.Request != command.RequestID{}
	case *command.CreateToken, *command.PutBlob:
		return true // expired ones are dropped
	}
	return false
}

func TestChaos(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, log := story(t, seed, 500)
			full := encode(t, s)
			again := newState(small, new(table.Hasher))
			feed(again, log)
			if !bytes.Equal(full, encode(t, again)) || again.Digest() != s.Digest() {
				t.Fatal("the same commands gave another state")
			}
			half := newState(small, new(table.Hasher))
			feed(half, log[:250])
			restored := restore(t, encode(t, half), half.Digest())
			feed(restored, log[250:])
			if !bytes.Equal(full, encode(t, restored)) || restored.Digest() != s.Digest() {
				t.Fatal("snapshot and tail gave another state than the whole log")
			}
			if err := restored.Check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func restore(t *testing.T, snapshot []byte, digest uint64) *State {
	t.Helper()
	s, err := decode(bytes.NewReader(snapshot), small)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if s.Digest() != digest {
		t.Fatalf("digest %016x after restoring, %016x before", s.Digest(), digest)
	}
	if !bytes.Equal(encode(t, s), snapshot) {
		t.Fatal("a restored state writes another snapshot")
	}
	return s
}

// TestViewsStandStill encodes a view while the state changes.
func TestViewsStandStill(t *testing.T) {
	s, _ := story(t, 1000, 300)
	view := s.View()
	want := encode(t, s)
	done := make(chan []byte, 4)
	for range cap(done) {
		go func() {
			var b bytes.Buffer
			if err := view.Encode(&b); err != nil {
				b.Reset()
			}
			for j := range view.Jobs(0) {
				_, _ = view.Job(j.ID)
			}
			view.Snapshot()
			done <- b.Bytes()
		}()
	}
	x := &chaos{r: rand.New(rand.NewPCG(3, 3)), s: s}
	for i := range 300 {
		s.Apply(s.index+1, s.now.Add(time.Duration(i)*time.Millisecond), x.next())
	}
	for range cap(done) {
		if got := <-done; !bytes.Equal(got, want) {
			t.Error("a view changed while it was written")
		}
	}
}

func TestDamagedSnapshots(t *testing.T) {
	s, _ := story(t, 2000, 400)
	data := encode(t, s)
	for i := 0; i < len(data); i += 1 + len(data)/3000 {
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if _, err := decode(bytes.NewReader(bad), small); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("a flipped bit in byte %d: %v", i, err)
		}
		if _, err := decode(bytes.NewReader(data[:i]), small); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	broken := io.MultiReader(bytes.NewReader(data[:100]), &failing{})
	if _, err := Decode(broken); !errors.Is(err, errDisk) {
		t.Errorf("a disk error became %v", err)
	}
	r := strings.NewReader(string(data) + "more")
	if _, err := decode(r, small); err != nil || r.Len() != 4 {
		t.Errorf("what follows a snapshot was touched: %v, %d bytes left", err, r.Len())
	}
}

var errDisk = errors.New("disk")

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, errDisk }

// bodyDigest returns the digest without what changes with every command, and without the ledger.
func bodyDigest(s *State) uint64 {
	m, sum := s.metaOf(), s.credits.Ledger().Digest()
	codec.Uint(s.hasher.Begin(table.Credits), &sum)
	return s.hasher.Sum() ^ s.Digest() ^ table.Hash(s.hasher, table.Meta, &m, metaFields)
}
