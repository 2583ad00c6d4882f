//go:build linux

package ginit

import (
	"errors"
	"reflect"
	"syscall"
	"testing"
)

func FuzzDecodeOrder(f *testing.F) {
	f.Add([]byte(`{"args":["/bin/true"],"env":["A=b"],"become":true,"uid":1000,"gid":1000,"groups":[1,2],"umask":18}`))
	f.Add([]byte(`{"args":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		order, err := DecodeOrder(data)
		if err != nil {
			return
		}
		again, err := EncodeOrder(order)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeOrder(again)
		if err != nil || len(back.Args) != len(order.Args) || back.UID != order.UID {
			t.Errorf("%+v became %+v: %v", order, back, err)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"code":137,"signal":9,"started":1,"ended":2,"max_rss":4096,"cpu":7}`))
	f.Add([]byte(`{"code":-1,"ended":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		record, err := DecodeRecord(data)
		if err != nil {
			return
		}
		again, err := EncodeRecord(record)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeRecord(again)
		if err != nil || !reflect.DeepEqual(back, record) {
			t.Errorf("%+v became %+v: %v", record, back, err)
		}
		if record.Duration() < 0 {
			t.Error("negative duration")
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	for _, bad := range []string{"", "{}", "[]", `{"args":[""]}`, `{"args":"x"}`} {
		if _, err := DecodeOrder([]byte(bad)); !errors.Is(err, ErrBadFile) {
			t.Errorf("order %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "{}", `{"code":256,"ended":1}`, `{"code":1,"signal":200,"ended":1}`, `{"code":0}`} {
		if _, err := DecodeRecord([]byte(bad)); !errors.Is(err, ErrBadFile) {
			t.Errorf("record %q: %v", bad, err)
		}
	}
}

// decide executes the filter as the kernel does (seccomp(2), bpf(4)), for the six instructions that
// it uses.
func decide(t *testing.T, code []syscall.SockFilter, arch, call, arg0, arg1 uint32) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(code); pc++ {
		i := code[pc]
		taken := false
		switch i.Code {
		case loadWord:
			a = map[uint32]uint32{offsetCall: call, offsetArch: arch, offsetArg0: arg0, offsetArg1: arg1}[i.K]
			continue
		case jumpAlways:
			pc += int(i.K)
			continue
		case answer:
			return i.K
		case jumpEqual:
			taken = a == i.K
		case jumpGreater:
			taken = a > i.K
		case jumpAnyBit:
			taken = a&i.K != 0
		default:
			t.Fatalf("instruction %#x", i.Code)
		}
		if taken {
			pc += int(i.Jt)
		} else {
			pc += int(i.Jf)
		}
	}
	t.Fatal("the filter has no answer")
	return 0
}

// TestFilter compares every call of every instruction set with the table of the filter, and the
// calls that depend on an argument.
func TestFilter(t *testing.T) {
	sets := instructionSets()
	code := program(sets)
	if len(code) > 4096 {
		t.Fatalf("%d instructions, the kernel takes 4096", len(code))
	}
	for _, set := range sets {
		denied := map[uint32]bool{}
		for _, call := range set.denied {
			denied[call] = true
		}
		for call := uint32(0); call < set.last+20; call++ {
			want := uint32(allow)
			switch {
			case call == set.clone3 || call > set.last:
				want = enosys()
			case denied[call]:
				want = eperm()
			}
			if got := decide(t, code, set.audit, call, 0, 0); got != want {
				t.Errorf("%#x call %d: %#x, want %#x", set.audit, call, got, want)
			}
		}
		for _, c := range []struct{ call, arg, want uint32 }{
			{set.clone, 0x10000000, eperm()}, {set.clone, uint32(syscall.SIGCHLD), allow},
			{set.clone, syscall.CLONE_VM | syscall.CLONE_THREAD, allow}, {set.clone, syscall.CLONE_NEWNS, eperm()},
			{set.personality, 0xffffffff, allow}, {set.personality, 0x40000, eperm()},
			{set.socket, syscall.AF_INET, allow}, {set.socket, 38, eperm()}, {set.socket, 39, allow}, {set.socket, 40, eperm()}, {set.socket, 46, eperm()},
			{set.ioctl, setFileAttributes, eperm()}, {set.ioctl, 0x801c581f, allow}, {set.ioctl, syscall.TCGETS, allow},
			{1<<30 | 1, 0, enosys()},
		} {
			arg0, arg1 := c.arg, uint32(0)
			if c.call == set.ioctl {
				arg0, arg1 = 0, c.arg
			}
			if got := decide(t, code, set.audit, c.call, arg0, arg1); got != c.want {
				t.Errorf("%#x call %d(%#x): %#x, want %#x", set.audit, c.call, c.arg, got, c.want)
			}
		}
	}
	if got := decide(t, code, 0xdead, 1, 0, 0); got != enosys() {
		t.Errorf("an unknown instruction set: %#x", got)
	}
}
