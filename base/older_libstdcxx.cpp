// GCC 12 gave std::condition_variable::wait another version, GLIBCXX_3.4.30, with which no older
// libstdc++ loads a program. The linker sends calls to the function below (base/CMakeLists.txt),
// which takes the version that every libstdc++ has; that one waits the same way.
#include <condition_variable>
#include <mutex>

extern "C" {

void older_wait(std::condition_variable*, std::unique_lock<std::mutex>*);
__asm__(
    ".symver older_wait,_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>* lock) {
  older_wait(condition, lock);
}

}  // extern "C"
