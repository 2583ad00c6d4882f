package gpu

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestXIDTable: each number has the action of NVIDIA's catalogue, with the corrections of its text.
func TestXIDTable(t *testing.T) {
	want := map[Action][]int{
		User: {8, 11, 13, 25, 43, 69, 137},
		Suspect: {
			31, 32, 80, 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135,
			60, 68, 82, 83, 84, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139, 142,
		},
		Shadow: {45},
		Remap:  {63},
		Note: {
			92, 93, 14, 37, 38, 44, 66, 67, 78, 106, 107, 121, 141, 152, 153, 157, 159, 160, 161,
			162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172,
		},
		Contained: {48, 94},
		Reset:     {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158},
		Link:      {74, 144, 145, 146, 147, 148, 149, 150},
		Reboot:    {79},
		Drain:     {54, 151},
		Verdict:   {154},
	}
	table, rows := xids(), 0
	if table.version != 2 {
		t.Errorf("version %d", table.version)
	}
	for action, numbers := range want {
		rows += len(numbers)
		for _, number := range numbers {
			if x := table.of(number); x.action != action || x.words == "" {
				t.Errorf("XID %d: %s, %q; want %s", number, x.action, x.words, action)
			}
		}
	}
	if len(table.rows) != rows {
		t.Errorf("%d rows, %d checked", len(table.rows), rows)
	}
	if x := table.of(999); x.action != Unknown || x.words != "XID 999 is not in table version 2" {
		t.Errorf("an unknown number: %+v", x)
	}
	for _, text := range []string{"", "1 user x", "version 1\n1 wrong x", "version 1\nuser x", "version 1\n1 2", "version 1\n1 user x\n1 note y", "version 1\n3-1 user x", "version 1\n1 user", "version 1\n1 unknown x"} {
		if _, err := parseXIDs(text); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestClassesOfActions(t *testing.T) {
	got := ""
	for a := Unknown; a <= Verdict; a++ {
		got += fmt.Sprintf("%s=%s ", a, a.Class())
	}
	if want := "unknown=notice note=notice shadow=notice user=notice suspect=notice remap=notice link=degraded contained=degraded reset=broken drain=broken reboot=broken verdict=notice "; got != want {
		t.Error(got)
	}
}

func TestKernelLog(t *testing.T) {
	for line, want := range map[string]string{
		"4,1234,99,-;NVRM: Xid (PCI:0000:1B:00): 79, pid=1234, name=python, GPU has fallen off the bus.":             "0000:1b:00.0 79 reboot",
		"NVRM: GPU at PCI:0000:1b:00: GPU-0b6d":                                                                      "",
		"NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.":                                                        "0000:1b:00.0 79 reboot",
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=77, name=a.out, Ch 00000008, intr 10000000. MMU Fault":                  "0000:1b:00.0 31 suspect",
		"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)": "0000:1b:00.0 154 verdict reboot of its node",
		"NVRM: Xid (PCI:0000:1b:00): 154, words of a later driver":                                                   "0000:1b:00.0 154 verdict",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)":  " 0 note",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up":                            " 0 link",
		"NVRM: Xid (PCI:0000:1b:00): many":                                                                           "",
		"usb 1-1: it has fallen off the bus":                                                                         "",
	} {
		got := ""
		if e, ok := KernelEvent(line); ok {
			got = fmt.Sprintf("%s %d %s", e.Bus, e.XID, e.Action)
			if e.Judged {
				got += " " + e.Recovery.String()
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestCoalescer(t *testing.T) {
	var c Coalescer
	start := time.Unix(1000, 0)
	sent := 0
	for i := range 10_000 {
		if c.Add(start.Add(time.Duration(i)*100*time.Microsecond), RawEvent{UUID: "a", Type: typeXID, Data: 45}) {
			sent++
		}
	}
	if sent != 1 || !c.Add(start, RawEvent{UUID: "b", Type: typeXID, Data: 45}) || len(c.Due(start.Add(coalesceFor-1))) != 0 {
		t.Errorf("%d sent", sent)
	}
	if due := c.Due(start.Add(coalesceFor)); len(due) != 1 || due[0].Count != 9999 || due[0].UUID != "a" {
		t.Errorf("due: %+v", due)
	}
	if due := c.Due(start.Add(3 * coalesceFor)); len(due) != 0 || len(c.kinds) != 0 {
		t.Errorf("afterwards: %+v, %v", due, c.kinds)
	}
	for i := range 2 * mostKinds {
		c.Add(start, RawEvent{Type: typeXID, Data: uint64(i)})
	}
	if len(c.kinds) != mostKinds {
		t.Errorf("%d kinds", len(c.kinds))
	}
}
