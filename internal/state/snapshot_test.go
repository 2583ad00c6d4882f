package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

const golden = "testdata/snapshot-v1.golden"

// TestGolden checks that a snapshot that version 1 wrote can be read permanently and gives the same
// state. -rewrite writes the file once, if it is absent.
func TestGolden(t *testing.T) {
	if _, err := os.Stat(golden); err != nil && scenario.Rewrite() {
		s, _ := story(t, 77, 700)
		if err := os.WriteFile(golden, encode(t, s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	s, err := decode(bytes.NewReader(data), small)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	x := &script{t: t, s: s}
	for _, part := range []string{x.jobs(), x.nodes(), x.run("state")} {
		list.WriteString(part + "\n")
	}
	const shown = golden + ".shown"
	want, err := os.ReadFile(shown)
	if err != nil && scenario.Rewrite() {
		want = []byte(list.String())
		err = os.WriteFile(shown, want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if list.String() != string(want) {
		t.Errorf("the golden snapshot holds\n%s\nand held\n%s", list.String(), want)
	}
}

// TestDigestVersion compares the digest of the golden snapshot by the version of the digest: if it
// differs, replicas of the previous release compute another digest of an equal state.
func TestDigestVersion(t *testing.T) {
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	s, err := decode(bytes.NewReader(data), small)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/digest.golden"
	got := fmt.Sprintf("version %d digest %016x\n", DigestVersion, s.Digest())
	if scenario.Rewrite() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the golden snapshot has %sand had %sif %q was released, raise DigestVersion; then -rewrite", got, want, want)
	}
}

// TestSnapshotOfAnotherDigestVersion checks that a snapshot is refused if its digest is not that of
// its state, unless a program with another digest version wrote it.
func TestSnapshotOfAnotherDigestVersion(t *testing.T) {
	s, _ := story(t, 5, 300)
	v := *s.View()
	v.digest ^= 1
	var written bytes.Buffer
	if err := v.Encode(&written); err != nil {
		t.Fatal(err)
	}
	if _, err := decode(bytes.NewReader(written.Bytes()), small); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a state with another digest: %v", err)
	}
	other := written.Bytes()
	other[len(other)-5]++                                            // the version is the last byte before the CRC
	size := 1 + 4 + len(binary.AppendUvarint(nil, v.digest)) + 1 + 4 // kind, length, digest, version, CRC
	frame := other[len(other)-size:]
	binary.LittleEndian.PutUint32(frame[len(frame)-4:], table.Checksum(frame[:len(frame)-4], nil))
	got, err := decode(bytes.NewReader(other), small)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != s.Digest() {
		t.Errorf("its digest is %016x, was %016x", got.Digest(), s.Digest())
	}
}

// reseal gives frames their correct length and CRC, so that a fuzzer passes them: each input byte
// string between marks becomes a frame.
func reseal(data []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte(snapshotMark), snapshotVersion)
	for len(data) > 3 {
		kind, size := data[0], int(binary.LittleEndian.Uint16(data[1:3]))
		data = data[3:]
		size = min(size, len(data))
		head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(size))
		frame := append(head, data[:size]...)
		data = data[size:]
		out = binary.LittleEndian.AppendUint32(append(out, frame...), table.Checksum(frame, nil))
	}
	return out
}

// unseal is the opposite, for seeds.
func unseal(t testing.TB, snapshot []byte) []byte {
	var out []byte
	for rest := snapshot[len(snapshotMark)+4:]; len(rest) > 0; {
		size := int(binary.LittleEndian.Uint32(rest[1:5]))
		if size > 0xffff {
			t.Fatal("a frame is too large for a seed")
		}
		out = append(out, rest[0])
		out = binary.LittleEndian.AppendUint16(out, uint16(size))
		out = append(out, rest[5:5+size]...)
		rest = rest[9+size:]
	}
	return out
}

func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile(golden)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(unseal(f, data))
	s := newState(small, new(table.Hasher))
	var b bytes.Buffer
	if err := s.View().Encode(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(unseal(f, b.Bytes()))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decode(bytes.NewReader(reseal(data)), small)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		again := encode(t, s)
		if _, err := decode(bytes.NewReader(again), small); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}

// TestHostileFrames changes every byte of a small snapshot behind correct CRCs, so that only the
// digest and the checks of each record can refuse it.
func TestHostileFrames(t *testing.T) {
	s, _ := story(t, 5, 40)
	seed := unseal(t, encode(t, s))
	if _, err := decode(bytes.NewReader(reseal(seed)), small); err != nil {
		t.Fatal(err)
	}
	for i := range seed {
		for _, flip := range []byte{1, 0xff} {
			bad := slices.Clone(seed)
			bad[i] ^= flip
			got, err := decode(bytes.NewReader(reseal(bad)), small)
			if err == nil && got.Digest() != s.Digest() {
				t.Fatalf("byte %d: another state was accepted", i)
			}
		}
	}
}

func TestArraysShareTheirSpec(t *testing.T) {
	x := &script{t: t, s: newState(small, new(table.Hasher)), now: 1}
	x.apply(x.submission(split("ada array=0-99 name=sweep")))
	one := encode(t, x.s)
	x.apply(x.submission(split("ada array=0-99 name=sweep")))
	two := encode(t, x.s)
	if grown := len(two) - len(one); grown > 100*61 {
		t.Errorf("a hundred elements more take %d bytes in a snapshot", grown)
	}
	s := restore(t, two, x.s.Digest())
	specs := map[*cluster.JobSpec]bool{}
	for j := range s.View().Jobs(0) {
		specs[j.Spec] = true
	}
	if len(specs) != 1 {
		t.Errorf("%d copies of one specification after restoring", len(specs))
	}
}

// TestEarlierSnapshot checks that the state of a development version is refused as such.
func TestEarlierSnapshot(t *testing.T) {
	_, err := Decode(strings.NewReader("GREYLAG state\n\x01\x00\x00\x00\x01"))
	if !errors.Is(err, codec.ErrEarlier) {
		t.Errorf("answered %v", err)
	}
}
