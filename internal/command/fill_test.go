package command

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// filler sets every field of a value by reflection, so that a field which the
// codec forgets does not survive a round trip.
type filler struct {
	r     *rand.Rand
	full  bool // every field gets a value that is not zero
	count uint64
}

func (f *filler) fill(v reflect.Value) {
	f.count++
	if tasks, is := v.Addr().Interface().(**cluster.Tasks); is {
		var list []cluster.Task
		f.fill(reflect.ValueOf(&list).Elem())
		*tasks = cluster.NewTasks(list...)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.full || f.r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Slice:
		n := 2
		if !f.full {
			n = f.r.IntN(4)
		}
		if n == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if v.Index(i).Kind() == reflect.Pointer { // elements are never nil
				v.Index(i).Set(reflect.New(v.Index(i).Type().Elem()))
				f.fill(v.Index(i).Elem())
				continue
			}
			f.fill(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(f.full || f.r.IntN(2) == 0)
	case reflect.String:
		if f.full || f.r.IntN(3) > 0 {
			v.SetString(fmt.Sprintf("s%d", f.number(16)))
		}
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.number(v.Type().Bits())) * int64(1-2*(f.count%2)))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(f.number(v.Type().Bits()))
	default:
		panic("no way to fill a " + v.Type().String())
	}
}

// number is at least 1 when every field is wanted, and fits the bits with a sign.
func (f *filler) number(bits int) uint64 {
	if f.full {
		return f.count%100 + 1
	}
	return f.r.Uint64() >> (65 - bits + f.r.IntN(bits))
}

func filled[T any](seed uint64, full bool) *T {
	v := new(T)
	f := &filler{r: rand.New(rand.NewPCG(seed, 0)), full: full}
	f.fill(reflect.ValueOf(v).Elem())
	return v
}

// every is one command of each kind with contents from the seed.
func every(seed uint64, full bool) []Command {
	return []Command{
		filled[Init](seed, full), filled[SubmitJobs](seed, full), filled[CancelJobs](seed, full),
		filled[UpdateJobs](seed, full), filled[RegisterNode](seed, full), filled[ReportTasks](seed, full),
		filled[SetLiveness](seed, full), filled[UpdateNodes](seed, full), filled[CommitPlan](seed, full),
		filled[Tick](seed, full), filled[ApplyPolicy](seed, full), filled[CreateToken](seed, full),
		filled[UseToken](seed, full), filled[PutBlob](seed, full),
		filled[EditAccounts](seed, full), filled[SetTopology](seed, full),
		filled[ChangeCredits](seed, full), filled[MeterJobs](seed, full),
		filled[RecordMember](seed, full), filled[RetireMember](seed, full),
		filled[Restored](seed, full),
		filled[RecordCertificate](seed, full), filled[RevokeCertificates](seed, full), filled[RotateCA](seed, full),
		filled[CreateStep](seed, full), filled[SignalStep](seed, full),
		filled[SetCron](seed, full), filled[UpdateCron](seed, full), filled[RecordCron](seed, full), filled[AttachStep](seed, full),
		filled[SetSecret](seed, full), filled[DeleteSecrets](seed, full), filled[ResealSecrets](seed, full),
		filled[CommitCheckpoint](seed, full), filled[SetCheckpoint](seed, full), filled[FenceNode](seed, full),
		filled[SetOffers](seed, full), filled[UpdateLeases](seed, full), filled[EndLeases](seed, full),
	}
}

func TestEveryKindIsListed(t *testing.T) {
	seen := map[kind]bool{}
	for _, c := range every(0, true) {
		seen[c.kind()] = true
	}
	for k := range kind(1000) {
		if (blank(k) != nil) != seen[k] {
			t.Errorf("kind %d: in the codec %v, in the tests %v", k, blank(k) != nil, seen[k])
		}
	}
}
