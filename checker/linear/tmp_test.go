package linear
import ("testing";"time";"github.com/anishathalye/porcupine")
func TestTmp(t *testing.T){
 for _, n := range []int{1000,3000,10000} {
  k := oneKey(n, 0.1)
  start := time.Now()
  r := porcupine.CheckOperationsTimeout(describedModel(nil), lean(k.ops), 100*time.Second)
  t.Log(n, r, time.Since(start))
 }
}
