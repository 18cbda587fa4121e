// An echo acceptor on QuickFIX C++, which `load fix --peer` measures ours beside.
//
//   echo MODE
//
// bare      no dictionary, messages kept in memory: what the engine costs at the least
// checked   every message validated by the dictionary of FIX 4.4, messages kept in memory: as ours
// full      every message validated, messages kept in files: as the engine is run where nothing may be lost
//
// The sessions are FIX.4.4, DVP with CLNT0 to CLNT7. It sends orders back and knows those it has seen, like ours, has
// no log, and prints `listening HOST:PORT`. It ends when its standard input does.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "Application.h"
#include "FileStore.h"
#include "MessageStore.h"
#include "Session.h"
#include "SessionSettings.h"
#include "SocketAcceptor.h"

namespace {

constexpr int kSessions = 8;

class Echo : public FIX::NullApplication {
  void onLogout(const FIX::SessionID &session) override { seen_[session].clear(); }

  void fromApp(const FIX::Message &message, const FIX::SessionID &session)
      EXCEPT(FIX::FieldNotFound, FIX::IncorrectDataFormat, FIX::IncorrectTagValue, FIX::UnsupportedMessageType) override {
    if (message.getHeader().getField(FIX::FIELD::MsgType) != FIX::MsgType_NewOrderSingle) {
      throw FIX::UnsupportedMessageType();
    }
    FIX::PossResend repeated(false);
    message.getHeader().getFieldIfSet(repeated);
    const bool is_new = seen_[session].insert(message.getField(FIX::FIELD::ClOrdID)).second;
    if (is_new || !repeated) {
      FIX::Message echo(message);
      FIX::Session::sendToTarget(echo, session);
    }
  }

  std::map<FIX::SessionID, std::set<std::string>> seen_;
};

// A port that is free: the engine takes no 0.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool is_bound = ::bind(socket, reinterpret_cast<sockaddr *>(&address), length) == 0 &&
                        ::getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length) == 0;
  ::close(socket);
  return is_bound ? ntohs(address.sin_port) : 0;
}

std::string settings(int port, bool is_checked, const std::string &dictionary, const std::string &store) {
  std::ostringstream text;
  text << "[DEFAULT]\nConnectionType=acceptor\nStartTime=00:00:00\nEndTime=00:00:00\nResetOnLogon=Y\n"
       << "SocketNodelay=Y\nBeginString=FIX.4.4\nSenderCompID=DVP\nSocketAcceptPort=" << port
       << "\nFileStorePath=" << store << "\nUseDataDictionary=" << (is_checked ? "Y" : "N") << '\n';
  if (is_checked) {
    text << "DataDictionary=" << dictionary << '\n';
  }
  for (int session = 0; session < kSessions; ++session) {
    text << "[SESSION]\nTargetCompID=CLNT" << session << '\n';
  }
  return text.str();
}

int serve(const std::string &mode, const std::filesystem::path &own) {
  const int port = free_port();
  const auto dictionary = own.parent_path() / "quickfix-1.16.0/spec/FIX44.xml";
  const auto store = own.parent_path() / "store";
  // What a run before this one left.
  std::filesystem::remove_all(store);
  std::istringstream text(settings(port, mode != "bare", dictionary.string(), store.string()));
  FIX::SessionSettings parsed(text);
  Echo echo;
  FIX::MemoryStoreFactory memory;
  FIX::FileStoreFactory files(parsed);
  FIX::MessageStoreFactory &factory = mode == "full" ? static_cast<FIX::MessageStoreFactory &>(files) : memory;
  FIX::SocketAcceptor acceptor(echo, factory, parsed);
  acceptor.start();
  std::cout << "listening 127.0.0.1:" << port << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  acceptor.stop(true);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char **argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "bare" && mode != "checked" && mode != "full") {
    std::cerr << "usage: echo bare|checked|full\n";
    return EXIT_FAILURE;
  }
  try {
    return serve(mode, std::filesystem::read_symlink("/proc/self/exe"));
  } catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
