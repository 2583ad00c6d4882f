package raftlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestGoldenEntries reads entries of released versions, in hex with their content; they must stay
// readable.
func TestGoldenEntries(t *testing.T) {
	text, err := os.ReadFile("testdata/entries.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		seen++
		entry, err := hex.DecodeString(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		e, err := decodeEnvelope(entry)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !bytes.Equal(e.encode(), entry) {
			t.Errorf("%s: encodes to %x", line, e.encode())
		}
		if e.kind == kindCommands && string(bytes.Join(e.commands, []byte(","))) != fields[1] {
			t.Errorf("%s: holds %q", line, e.commands)
		}
		if e.kind == kindCheckpoint && e.checkpoint != (checkpoint{41, 0xfeed, 3}) {
			t.Errorf("%s: holds %+v", line, e.checkpoint)
		}
	}
	if seen < 3 {
		t.Fatalf("only %d golden entries", seen)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	entry := envelope{at: 7, commands: [][]byte{[]byte("first"), {}, []byte("third")}}.encode()
	for i := range len(entry) * 8 {
		bad := slices.Clone(entry)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := decodeEnvelope(bad); !errors.Is(err, errEnvelope) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for n := range entry {
		if _, err := decodeEnvelope(entry[:n]); !errors.Is(err, errEnvelope) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestNewerEntryIsNotDamage(t *testing.T) {
	for _, e := range []envelope{{kind: 9}} {
		if _, err := decodeEnvelope(e.encode()); !errors.Is(err, errUnsupported) {
			t.Errorf("kind %d: %v", e.kind, err)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(envelope{at: 1, commands: [][]byte{[]byte("x")}}.encode())
	f.Add(envelope{kind: kindCheckpoint, checkpoint: checkpoint{1, 2, 3}}.encode())
	f.Fuzz(func(t *testing.T, entry []byte) {
		e, err := decodeEnvelope(entry)
		if err != nil {
			return
		}
		again, err := decodeEnvelope(e.encode())
		if err != nil || !slices.EqualFunc(again.commands, e.commands, bytes.Equal) || again.at != e.at || again.checkpoint != e.checkpoint {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

// FuzzCommands reaches past the CRC, which a fuzzer cannot guess.
func FuzzCommands(f *testing.F) {
	f.Add([]byte{2, 1, 'a', 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		commands, err := decodeCommands(body)
		if err == nil && commandsSize(commands) > 10*len(body)+10 {
			t.Fatalf("%d bytes became %d", len(body), commandsSize(commands))
		}
	})
}
