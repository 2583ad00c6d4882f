package gpu

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

func TestType(t *testing.T) {
	for product, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100", "NVIDIA H100 NVL": "h100", "NVIDIA H200": "h200",
		"NVIDIA A100-SXM4-80GB": "a100", "NVIDIA A100 80GB PCIe": "a100", "A100-PCIE-40GB": "a100", "NVIDIA B200": "b200",
		"NVIDIA GB200": "gb200", "NVIDIA GH200 480GB": "gh200", "Tesla V100-SXM2-16GB": "v100", "Tesla T4": "t4",
		"NVIDIA L40S": "l40s", "NVIDIA L4": "l4", "NVIDIA A10G": "a10g", "NVIDIA GeForce RTX 4090": "rtx4090",
		"NVIDIA GeForce RTX 3070 Ti Laptop GPU": "rtx3070ti", "Quadro RTX 8000": "rtx8000", "NVIDIA RTX A6000": "rtxa6000",
		"NVIDIA RTX 6000 Ada Generation": "rtx6000ada", "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000",
		"NVIDIA TITAN RTX": "titanrtx", "": "gpu", "NVIDIA": "gpu", "NVIDIA ßüß": "gpu", "NVIDIA H100 MIG 1g.10gb": "h100",
	} {
		if got := Type(product); got != want {
			t.Errorf("%q: %q, want %q", product, got, want)
		}
	}
}

func TestDomains(t *testing.T) {
	dev := func(bus string, links ...string) RawDevice { return RawDevice{Bus: bus, Links: links} }
	fabric := func(clique uint32) RawDevice { return RawDevice{Cluster: "c", Clique: clique} }
	for name, c := range map[string]struct {
		devices []RawDevice
		want    []string
	}{
		"alone":    {[]RawDevice{dev("a"), dev("b")}, []string{"", ""}},
		"pairs":    {[]RawDevice{dev("a", "b"), dev("b", "a"), dev("c", "d"), dev("d")}, []string{"n/0", "n/0", "n/2", "n/2"}},
		"switch":   {[]RawDevice{dev("a", "switch"), dev("b"), dev("c", "switch", "switch")}, []string{"n/0", "", "n/0"}},
		"chain":    {[]RawDevice{dev("a"), dev("b", "c"), dev("c", "d"), dev("d", "b")}, []string{"", "n/1", "n/1", "n/1"}},
		"fabric":   {[]RawDevice{fabric(7), fabric(8)}, []string{"c.7", "c.8"}},
		"stranger": {[]RawDevice{dev("a", "elsewhere", "a")}, []string{""}},
	} {
		if got := domains("n", c.devices); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestEventsMean(t *testing.T) {
	for raw, want := range map[RawEvent]Action{
		{Type: typeXID, Data: 13}: User, {Type: typeXID, Data: 79}: Reboot, {Type: typeXID, Data: 94}: Contained,
		{Type: typeXID, Data: 1 << 60}: Unknown, {Type: typeDoubleBitECC}: Contained, {Type: typeFatalPoison}: Reset,
		{Type: typeUnavailable}: Reboot, {Type: typeRecovery}: Verdict, {Type: typeRecovery, Data: 2}: Verdict,
	} {
		if e, known := event(raw); !known || e.Action != want || e.Message == "" || e.Judged != (want == Verdict) {
			t.Errorf("%+v: %+v, %v", raw, e, known)
		}
	}
	if _, known := event(RawEvent{Type: 0x10}); known {
		t.Error("a clock change is an event")
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"id":1,"host":{"driver":"1","devices":[{"index":0,"uuid":"a","name":"NVIDIA H100","memory":1,"minor":0,"bus":"0","links":["switch","0"]}]}}`))
	f.Add([]byte(`{"event":{"type":8,"data":79}}`))
	f.Add([]byte(`{"id":2,"loads":[{"uuid":"a","busy":7,"memory":0},{"uuid":"b"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := DecodeReply(line)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		for _, l := range r.Loads {
			if l.UUID == "" || l.Busy != nil && (*l.Busy < 0 || *l.Busy > 100) || l.Memory != nil && *l.Memory < 0 {
				t.Fatalf("%q says %+v", line, l)
			}
		}
		if r.Event != nil {
			event(*r.Event)
		}
		if r.Host != nil {
			for _, d := range (&Helper{host: "n"}).describe(*r.Host).Devices {
				if d.Type == "" {
					t.Fatalf("%+v has no type", d)
				}
			}
		}
		again, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeReply(again); err != nil || len(back.Loads) != len(r.Loads) || !reflect.DeepEqual(back.Processes, r.Processes) {
			t.Fatalf("%q became %q, %v", line, again, err)
		}
	})
}

// TestRepliesThatNoHelperGives checks that invalid replies are refused.
func TestRepliesThatNoHelperGives(t *testing.T) {
	for _, line := range []string{
		`{"id":1,"loads":[{"uuid":"a","busy":101}]}`, `{"id":1,"loads":[{"uuid":"a","busy":-1}]}`, `{"id":1,"loads":[{"uuid":"a","memory":-1}]}`,
		`{"id":1,"loads":[{"uuid":"a"},{"uuid":"a"}]}`, `{"id":1,"loads":[{"busy":1}]}`, `{"id":1,"loads":[{"uuid":"a","busy":0.5}]}`,
	} {
		if r, err := DecodeReply([]byte(line)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %+v, %v", line, r, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"id":1,"op":"processes","uuids":["a"]}`))
	f.Add([]byte(`{"id":2,"op":"loads","uuids":["a","b"]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, err := DecodeRequest(line); err != nil && !errors.Is(err, ErrProtocol) || err == nil && r.ID == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}
