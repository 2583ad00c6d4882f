package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every connection between members begins with one hello and one answer:
//
//	hello:  "GLRF" version use | cluster, id of the caller, id of the called (each 1 length byte + bytes) | incarnation of the called, 8 bytes LE
//	answer: "GLRF" version verdict | id of the answering member | its incarnation
//
// The caller names the exact member, so a member that lost its data directory, or another one that
// took over its address, gets none of its messages. An empty called ID and incarnation 0 mean
// "any", which only a probe may ask for.
const (
	helloMagic   = "GLRF"
	helloVersion = 1
)

// use is the purpose of a connection.
type use byte

const (
	useRaft  use = 'R'
	useProbe use = 'P'
)

// verdict is the answer to a hello.
type verdict byte

const (
	welcome verdict = iota
	wrongCluster
	wrongMember
	badHello
	removed // the caller was removed from the cluster
)

// Refusals of a peer, wrapped in the errors of AddMember and in the log.
var (
	// ErrWrongCluster reports that the peer belongs to another cluster.
	ErrWrongCluster = errors.New("raftlog: peer belongs to another cluster")
	// ErrWrongMember reports that another member is at that address, or the same one with a new
	// data directory: remove it and add it under a new ID.
	ErrWrongMember = errors.New("raftlog: a different member answers at that address, or the member lost its data directory")
	errHandshake   = errors.New("raftlog: peer does not speak this protocol")
)

type hello struct {
	use         use
	cluster     string
	from, to    string
	incarnation uint64
}

type answer struct {
	verdict     verdict
	id          string
	incarnation uint64
}

func (h hello) encode() []byte {
	buf := append([]byte(helloMagic), helloVersion, byte(h.use))
	for _, s := range []string{h.cluster, h.from, h.to} {
		buf = append(append(buf, byte(len(s))), s...)
	}
	return binary.LittleEndian.AppendUint64(buf, h.incarnation)
}

func (a answer) encode() []byte {
	buf := append([]byte(helloMagic), helloVersion, byte(a.verdict))
	buf = append(append(buf, byte(len(a.id))), a.id...)
	return binary.LittleEndian.AppendUint64(buf, a.incarnation)
}

// readHello reads at most 6 + 3×65 + 8 bytes.
func readHello(r io.Reader) (hello, error) {
	var h hello
	kind, err := readMagic(r)
	if err != nil {
		return h, err
	}
	h.use = use(kind)
	for _, s := range []*string{&h.cluster, &h.from, &h.to} {
		if *s, err = readName(r); err != nil {
			return h, err
		}
	}
	h.incarnation, err = readUint64(r)
	return h, err
}

func readAnswer(r io.Reader) (answer, error) {
	var a answer
	v, err := readMagic(r)
	if err != nil {
		return a, err
	}
	a.verdict = verdict(v)
	if a.id, err = readName(r); err != nil {
		return a, err
	}
	a.incarnation, err = readUint64(r)
	return a, err
}

// readMagic reads the start of a hello or an answer and returns the byte after it.
func readMagic(r io.Reader) (byte, error) {
	var b [len(helloMagic) + 2]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, fmt.Errorf("%w: %w", errHandshake, err)
	}
	if string(b[:4]) != helloMagic || b[4] != helloVersion {
		return 0, errHandshake
	}
	return b[5], nil
}

func readName(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", fmt.Errorf("%w: %w", errHandshake, err)
	}
	if n[0] > maxName {
		return "", fmt.Errorf("%w: name of %d bytes", errHandshake, n[0])
	}
	b := make([]byte, n[0])
	if _, err := io.ReadFull(r, b); err != nil {
		return "", fmt.Errorf("%w: %w", errHandshake, err)
	}
	return string(b), nil
}

func readUint64(r io.Reader) (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, fmt.Errorf("%w: %w", errHandshake, err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// check decides whether self answers to h.
func (h hello) check(self identity) verdict {
	anyone := h.use == useProbe && h.to == "" && h.incarnation == 0
	switch {
	case h.use != useRaft && h.use != useProbe:
		return badHello
	case h.cluster != self.Cluster:
		return wrongCluster
	case !anyone && (h.to != self.ID || h.incarnation != self.Incarnation):
		return wrongMember
	}
	return welcome
}

// err returns the caller's error for the answer.
func (a answer) err() error {
	switch a.verdict {
	case welcome:
		return nil
	case wrongCluster:
		return ErrWrongCluster
	case wrongMember:
		return ErrWrongMember
	case removed:
		return ErrRemoved
	}
	return errHandshake
}
